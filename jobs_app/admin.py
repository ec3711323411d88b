"""Teams, tokens and jobs in the administration."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest

from audit_app.admin import Audited
from cluster_app.retiring_admin import RetiringAdmin
from jobs_app.errors import JobsError
from jobs_app.lifecycle.commands import cancel_job
from jobs_app.models import (
    ApiToken,
    Attempt,
    Budget,
    CpuRate,
    GradientNoise,
    Job,
    JobEvent,
    SiteAnnouncement,
    Team,
    TeamQuota,
    Throughput,
)
from jobs_app.people_admin import InvitingUserAdmin  # noqa: F401 - registers itself
from jobs_app.teams import restore_team, retire_team
from jobs_app.tokens import note_issued, revoke_token


class BudgetInline(admin.StackedInline[Budget, Team]):
    model = Budget


class TeamQuotaInline(admin.TabularInline[TeamQuota, Team]):
    model = TeamQuota
    extra = 0


class TeamForm(forms.ModelForm[Team]):
    class Meta:
        model = Team
        exclude = ("files_bytes",)  # noqa: DJ006 - all that an administrator sets

    def clean(self) -> dict[str, Any]:
        super().clean()
        members = self.cleaned_data.get("members", User.objects.none())
        if others := [lead.username for lead in self.cleaned_data.get("leads", ()) if lead not in members]:
            self.add_error("leads", f"No members of the team: {', '.join(others)}. Add them to its members, too.")
        return self.cleaned_data


@admin.register(Team)
class TeamAdmin(RetiringAdmin, Audited, admin.ModelAdmin[Team]):
    form = TeamForm
    refusals = (JobsError,)
    list_display = (
        "name",
        "weight",
        "max_job_weight",
        "max_gpus",
        "max_gpus_per_member",
        "max_code_mib",
        "max_files_gib",
        "idle_gpus_limit_min",
    )
    search_fields = ("name",)
    autocomplete_fields = ("members", "leads")
    inlines = (BudgetInline, TeamQuotaInline)
    actions = ("retire", "restore")

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Save quotas with the team; quotas above the GPUs that exist only cause a warning: nodes may be added."""
        super().save_related(request, form, formsets, change)
        for quota in form.instance.quotas.select_related("gpu_type"):
            if words := quota.excess_text():
                self.message_user(request, words, messages.WARNING)

    @admin.action(description="Retire: no more jobs, kept in the history", permissions=["change"])
    def retire(self, request: HttpRequest, teams: QuerySet[Team]) -> None:
        self.do_to_each(request, teams, retire_team, "Retired")

    @admin.action(description="Restore: a retired team may submit again", permissions=["change"])
    def restore(self, request: HttpRequest, teams: QuerySet[Team]) -> None:
        self.do_to_each(request, teams, restore_team, "Restored")


@admin.register(SiteAnnouncement)
class SiteAnnouncementAdmin(Audited, admin.ModelAdmin[SiteAnnouncement]):
    list_display = ("text", "is_warning", "before_login", "begins_at", "ends_at", "created_by")

    def save_model(
        self, request: HttpRequest, obj: SiteAnnouncement, form: forms.ModelForm[SiteAnnouncement], change: bool
    ) -> None:
        """Keep who announced it."""
        if not change:
            obj.created_by = User.objects.get(username=request.user.get_username())
        super().save_model(request, obj, form, change)


@admin.register(ApiToken)
class ApiTokenAdmin(admin.ModelAdmin[ApiToken]):
    list_display = ("name", "user", "scope", "prefix", "created_at", "expires_at", "used_at", "revoked_at")
    list_filter = ("scope",)
    fields = ("user", "name", "scope", "expires_at")
    list_select_related = ("user",)
    actions = ("revoke",)

    def save_model(self, request: HttpRequest, obj: ApiToken, form: forms.ModelForm[ApiToken], change: bool) -> None:
        """Show the text of a new token, for a script's account say, in a message; it is not stored."""
        self.message_user(request, f"Copy the token now, it cannot be shown again: {obj.set_text()}")
        super().save_model(request, obj, form, change)
        note_issued(obj, actor=request.user)  # type: ignore[arg-type]  # admin views need a logged-in user

    def has_change_permission(self, request: HttpRequest, obj: ApiToken | None = None) -> bool:
        return False  # whoever has the text would have another token

    def has_delete_permission(self, request: HttpRequest, obj: ApiToken | None = None) -> bool:
        return False  # revoked tokens are kept as a record of access

    @admin.action(description="Revoke", permissions=["revoke"])
    def revoke(self, request: HttpRequest, tokens: QuerySet[ApiToken]) -> None:
        for token in tokens:
            revoke_token(token, actor=request.user)  # type: ignore[arg-type]  # admin views need a logged-in user

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("jobs_app.change_apitoken")


class Unchangeable:
    """Read-only rows: the service writes them."""

    def has_add_permission(self, *args: Any) -> bool:
        return False

    def has_change_permission(self, *args: Any) -> bool:
        return False

    def has_delete_permission(self, *args: Any) -> bool:
        return False


class AttemptInline(Unchangeable, admin.TabularInline[Attempt, Job]):
    model = Attempt
    fields = ("number", "state", "outcome", "exit_code", "gpu_type", "gpu_count", "nodes", "started_at", "ended_at")
    extra = 0


class JobEventInline(Unchangeable, admin.TabularInline[JobEvent, Job]):
    model = JobEvent
    fields = ("at", "kind", "attempt", "message", "actor")
    extra = 0


@admin.register(Job)
class JobAdmin(Unchangeable, admin.ModelAdmin[Job]):
    list_display = ("name", "state", "team", "owner", "reason", "created_at", "finished_at")
    list_filter = ("state", "team")
    search_fields = ("name__startswith",)
    list_select_related = ("team", "owner")
    show_full_result_count = False
    inlines = (AttemptInline, JobEventInline)
    actions = ("cancel",)

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Cancelling changes a job: permission to view it does not suffice."""
        return request.user.has_perm("jobs_app.change_job")

    @admin.action(description="Cancel", permissions=["cancel"])
    def cancel(self, request: HttpRequest, jobs: QuerySet[Job]) -> None:
        for job in jobs:
            try:
                cancel_job(job, actor=request.user)  # type: ignore[arg-type]  # admin views need a logged-in user
            except JobsError as error:
                self.message_user(request, f"{job}: {error}")


OF_A_GANG, MEASURED = (
    ("workload", "team", "gpu_type", "gpus", "nodes"),
    ("steps_per_second", "reports", "runs", "spread"),
)


class MeasuredRateAdmin(Unchangeable, admin.ModelAdmin[Any]):
    list_filter = ("gpu_type", "team")
    search_fields = ("workload__startswith",)
    list_select_related = ("team", "gpu_type")


@admin.register(Throughput)
class ThroughputAdmin(MeasuredRateAdmin):
    list_display = (*OF_A_GANG, "batch_size", *MEASURED)


@admin.register(CpuRate)
class CpuRateAdmin(MeasuredRateAdmin):
    list_display = (*OF_A_GANG, "cpus_per_gpu", "batch_size", *MEASURED)


@admin.register(GradientNoise)
class GradientNoiseAdmin(Unchangeable, admin.ModelAdmin[GradientNoise]):
    list_display = ("workload", "team", "grad_sqr", "sample_var", "reports")
    list_filter = ("team",)
    search_fields = ("workload__startswith",)
    list_select_related = ("team",)
