"""Administration of rounds, policy settings, time windows and quarantined items."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from audit_app.admin import Audited
from cluster_app.form_fields import KeyValueField, format_map
from scheduler_app.errors import InvalidChoice
from scheduler_app.models import PolicySetting, Round, SetAside, TimeWindow
from scheduler_app.policy.setting_form import PolicySettingForm
from scheduler_app.policy.settings import KEPT_FIELDS, choose_policy, restore_policy, with_defaults
from scheduler_app.windows.editing import window_faults


class TimeWindowForm(forms.ModelForm[TimeWindow]):
    labels = KeyValueField(required=False, help_text="Nodes with all of these; one key=value per line.")

    class Meta:
        model = TimeWindow
        fields = (
            *("kind", "reason", "nodes", "labels", "team", "gpu_type", "gpus"),
            *("begins_at", "ends_at", "cron", "zone", "repeats_until"),
        )

    def clean(self) -> dict[str, Any]:
        super().clean()
        self.cleaned_data["labels"] = self.cleaned_data.get("labels") or {}
        if "zone" in self.cleaned_data:
            for field, text in list(window_faults(self.cleaned_data, timezone.now())):
                self.add_error(field, text)
        return self.cleaned_data


@admin.register(TimeWindow)
class TimeWindowAdmin(Audited, admin.ModelAdmin[TimeWindow]):
    """Time windows that close nodes to some jobs: maintenance, and reservations of teams."""

    form = TimeWindowForm
    list_display = ("kind", "reason", "begins_at", "ends_at", "cron", "team", "gpu_type", "gpus")
    list_filter = ("kind", "team")
    search_fields = ("reason", "nodes__name")
    filter_horizontal = ("nodes",)
    list_select_related = ("team", "gpu_type")

    def save_model(
        self, request: HttpRequest, obj: TimeWindow, form: forms.ModelForm[TimeWindow], change: bool
    ) -> None:
        obj.created_by = obj.created_by or request.user  # type: ignore[assignment]  # admin views need a logged-in user
        super().save_model(request, obj, form, change)


@admin.register(PolicySetting)
class PolicySettingAdmin(admin.ModelAdmin[PolicySetting]):
    """Append-only: add a row to change the policy, choose an old row again to undo; the newest is in force."""

    list_display = ("policy", "parameter_words", *KEPT_FIELDS, "note", "created_at", "created_by")
    form = PolicySettingForm
    fields = PolicySettingForm.Meta.fields
    list_display_links = None
    actions = ("choose_again",)

    @admin.display(description="parameters")
    def parameter_words(self, setting: PolicySetting) -> str:
        return format_map(setting.parameters, between=", ")

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
        choose_policy(obj, actor=request.user)  # type: ignore[arg-type]  # admin views need a logged-in user

    def has_change_permission(self, request: HttpRequest, obj: PolicySetting | None = None) -> bool:
        return obj is None and super().has_change_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: PolicySetting | None = None) -> bool:
        return False

    @admin.action(description="Put the selected setting in force again", permissions=["add"])
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


@admin.register(SetAside)
class SetAsideAdmin(Audited, admin.ModelAdmin[SetAside]):
    """Quarantined items, which the scheduler skips for a while; it retries an item at once if its row is deleted."""

    list_display = ("kind", "key", "error", "times", "since", "retry_at")
    list_filter = ("kind",)
    search_fields = ("key", "error")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: SetAside | None = None) -> bool:
        return False
