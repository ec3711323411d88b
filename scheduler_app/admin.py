"""The policy and its history, the rounds, and nodes with their jobs, in Django admin."""

from collections.abc import Sequence

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from cluster_app.admin import NodeAdmin
from cluster_app.models import Node
from scheduler_app.choosing import KEPT, in_full
from scheduler_app.emptying import occupancies, words_of
from scheduler_app.errors import InvalidChoice
from scheduler_app.forms import PolicySettingForm
from scheduler_app.models import PolicySetting, Round
from scheduler_app.services import choose_again, choose_policy

admin.site.unregister(Node)


@admin.register(Node)
class NodeWithJobsAdmin(NodeAdmin):
    """The inventory's own page for nodes, which knows no jobs, with what taking them out of service would mean."""

    def consequences(self, nodes: Sequence[Node], state: Node.State) -> dict[str, str]:
        now = timezone.now()
        return {name: words_of(found, now) for name, found in occupancies(nodes, now, if_state=state).items()}


@admin.register(PolicySetting)
class PolicySettingAdmin(admin.ModelAdmin[PolicySetting]):
    """The newest row counts. To change the policy is to add a row; to undo is to choose an old one again."""

    list_display = ("policy", "parameters", *KEPT, "note", "created_at", "created_by")
    form = PolicySettingForm
    fields = PolicySettingForm.Meta.fields
    list_display_links = None
    actions = ("choose_again",)

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, str | list[str]]:
        current = PolicySetting.objects.current()
        initial = {name: getattr(current, name) for name in self.fields if name != "note"}
        return initial | {"parameters": in_full(current.policy, current.parameters)}

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

    @admin.action(description="Choose again (undo what came after)")
    def choose_again(self, request: HttpRequest, settings: QuerySet[PolicySetting]) -> None:
        if settings.count() != 1:
            self.message_user(request, "Select the one setting to go back to.")
            return
        try:
            choose_again(settings.get(), actor=request.user)  # type: ignore[arg-type]
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
