"""Recurring jobs: a job's spec with a schedule, by which the scheduler submits it."""

from datetime import datetime

from django.conf import settings
from django.contrib.auth.models import User
from django.db import models
from django.db.models import Q
from django.utils import timezone

from cluster_app.models import zone_is_known
from jobs_app.models.code_archive import CodeArchive
from jobs_app.models.team import Team


class RecurringJobQuerySet(models.QuerySet["RecurringJob"]):
    def visible_to(self, user: User) -> "RecurringJobQuerySet":
        """Recurring jobs of the user's teams; staff see all."""
        return self if user.is_staff else self.filter(team__in=user.teams.order_by().values("pk"))

    def due(self, now: datetime) -> "RecurringJobQuerySet":
        """Recurring jobs whose next due time has come, longest due first."""
        return self.filter(paused_at=None, next_due_at__lte=now).order_by("next_due_at", "pk")


class RecurringJob(models.Model):
    """A spec that is submitted at each due time of its schedule, in the name of its owner."""

    class Concurrency(models.TextChoices):
        FORBID = "forbid", "skip a due time while the run before is unfinished"
        REPLACE = "replace", "cancel the run before, and submit"
        ALLOW = "allow", "submit beside the run before"

    class Missed(models.TextChoices):
        SKIP = "skip", "skip due times at which the service was down"
        ONCE = "once", "submit once for all due times at which the service was down"

    OWNER_LINKED = "Its owner has linked the account to single sign-on: look at its spec, and resume it."
    """Why it is paused whose spec somebody else could have written in its owner's name: whoever resumes it owns it."""
    WRITTEN_ANEW = "Its spec was written anew after its owner had linked the account to single sign-on: resume it."
    """Likewise, once nobody else's spec is left: it is its writer's, whoever resumes it."""

    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="recurring_jobs")
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        related_name="recurring_jobs",
        help_text="Whoever last wrote its spec: runs are this person's jobs, with this person's secrets.",
    )
    name = models.CharField(max_length=100)
    spec = models.JSONField(help_text="Spec of each run, without its team.")
    code = models.ForeignKey(
        CodeArchive,
        null=True,
        on_delete=models.PROTECT,
        related_name="recurring_jobs",
        help_text="Of its spec: retention keeps it.",
    )
    schedule = models.CharField(max_length=100, help_text="Cron: minute, hour, day, month and weekday, as 0 3 * * *.")
    zone = models.CharField(max_length=50, default="UTC", validators=[zone_is_known])
    concurrency = models.CharField(max_length=10, choices=Concurrency.choices, default=Concurrency.FORBID)
    missed = models.CharField(max_length=10, choices=Missed.choices, default=Missed.SKIP)
    next_due_at = models.DateTimeField(null=True, help_text="Kept while it is paused; null: its schedule has ended.")
    paused_at = models.DateTimeField(null=True)
    paused_because = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    changed_at = models.DateTimeField(default=timezone.now)

    objects = RecurringJobQuerySet.as_manager()

    class Meta:
        ordering = ("name", "id")
        indexes = [
            models.Index(fields=("next_due_at",), condition=Q(paused_at__isnull=True), name="recurring_job_due"),
        ]
        constraints = [
            models.UniqueConstraint(fields=("team", "name"), name="recurring_job_once_per_team"),
            models.CheckConstraint(condition=~Q(name=""), name="recurring_job_has_a_name"),
            models.CheckConstraint(
                condition=Q(concurrency__in=("forbid", "replace", "allow")), name="recurring_job_concurrency_known"
            ),
            models.CheckConstraint(condition=Q(missed__in=("skip", "once")), name="recurring_job_missed_known"),
        ]

    def __str__(self) -> str:
        return self.name


class RecurringRun(models.Model):
    """One due time of a recurring job and its outcome, written in the transaction that submits the job."""

    class Outcome(models.TextChoices):
        SUBMITTED = "submitted", "submitted"
        SKIPPED = "skipped", "skipped"
        MISSED = "missed", "missed"
        REFUSED = "refused", "refused"

    recurring = models.ForeignKey(RecurringJob, on_delete=models.CASCADE, related_name="runs", db_index=False)
    due_at = models.DateTimeField(help_text="Of a run that was asked for: when.")
    at = models.DateTimeField(default=timezone.now)
    outcome = models.CharField(max_length=10, choices=Outcome.choices)
    job_id = models.UUIDField(null=True, help_text="First job of the run; it may be in the archive.")
    message = models.CharField(max_length=500, blank=True)

    class Meta:
        ordering = ("-due_at", "-id")
        indexes = [models.Index(fields=("at",), name="recurring_run_by_time")]
        constraints = [
            models.UniqueConstraint(fields=("recurring", "due_at"), name="recurring_run_once_per_due_time"),
            models.CheckConstraint(
                condition=Q(outcome="submitted", job_id__isnull=False)
                | Q(outcome__in=("skipped", "missed", "refused"), job_id=None),
                name="recurring_run_has_a_job_if_submitted",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.recurring_id} of {self.due_at:%F %H:%M}: {self.outcome}"
