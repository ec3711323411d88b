"""Django admin of policy settings, rounds, and nodes with their jobs."""

from collections.abc import Sequence

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from cluster_app.admin import NodeAdmin
from cluster_app.models import Node
from scheduler_app.errors import InvalidChoice
from scheduler_app.explain.drain_estimate import describe, occupancies
from scheduler_app.models import PolicySetting, Round
from scheduler_app.pages.forms import PolicySettingForm
from scheduler_app.policy.settings import TIMING_FIELDS, choose_policy, restore_policy, with_defaults

admin.site.unregister(Node)


@admin.register(Node)
class NodeWithJobsAdmin(NodeAdmin):
    """Nodes, with the consequences for jobs of taking a node out of service."""

    def consequences(self, nodes: Sequence[Node], state: Node.State) -> dict[str, str]:
        now = timezone.now()
        return {name: describe(found, now) for name, found in occupancies(nodes, now, if_state=state).items()}


@admin.register(PolicySetting)
class PolicySettingAdmin(admin.ModelAdmin[PolicySetting]):
    """Append-only: add a row to change the policy, choose an old row again to undo; the newest is in force."""

    list_display = ("policy", "parameters", *TIMING_FIELDS, "note", "created_at", "created_by")
    form = PolicySettingForm
    fields = PolicySettingForm.Meta.fields
    list_display_links = None
    actions = ("choose_again",)

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, str | list[str]]:
        current = PolicySetting.objects.current()
        initial = {name: getattr(current, name) for name in self.fields if name != "note"}
        return initial | {"parameters": with_defaults(current.policy, current.parameters)}

    def save_model(
        self,
        request: HttpRequest,
        obj: PolicySetting,
        form: forms.ModelForm[PolicySetting],
        change: bool,
    ) -> None:
        choose_policy(obj, actor=request.user)  # type: ignore[arg-type]  # admin views need a signed-in user

    def has_change_permission(self, request: HttpRequest, obj: PolicySetting | None = None) -> bool:
        return obj is None and super().has_change_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: PolicySetting | None = None) -> bool:
        return False

    @admin.action(description="Put the selected setting in force again")
    def choose_again(self, request: HttpRequest, settings: QuerySet[PolicySetting]) -> None:
        if settings.count() != 1:
            self.message_user(request, "Select exactly one setting.")
            return
        try:
            restore_policy(settings.get(), actor=request.user)  # type: ignore[arg-type]
        except InvalidChoice as error:
            self.message_user(request, str(error), messages.ERROR)


@admin.register(Round)
class RoundAdmin(admin.ModelAdmin[Round]):
    list_display = (
        "number",
        "started_at",
        "result",
        "status",
        "policy",
        "jobs",
        "starts",
        "stops",
        "moves",
        "objective",
        "gap",
    )
    list_filter = ("result", "status", "policy")
    show_full_result_count = False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Round]:
        return super().get_queryset(request).defer("archive")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Round | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Round | None = None) -> bool:
        return False
