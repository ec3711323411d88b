"""Runs of the policy lab with their request, progress and result, and the traces uploaded for them."""

import gzip
from collections.abc import Collection, Sequence
from typing import Self

from django.conf import settings
from django.contrib.auth.models import User
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

MOST_DAYS = 366
HIDDEN = "The result has figures of teams whose jobs you may no longer see."


class LabRunQuerySet(models.QuerySet["LabRun"]):
    def visible_to(self, user: User) -> "LabRunQuerySet":
        """Own runs; staff see all."""
        return self if user.is_staff else self.filter(owner=user)

    def unfinished(self) -> "LabRunQuerySet":
        return self.filter(state__in=LabRun.UNFINISHED)


class LabRun(models.Model):
    """One run: the history of some days, or an uploaded trace, under the current policy, others and other nodes."""

    class State(models.TextChoices):
        QUEUED = "queued", "queued"
        RUNNING = "running", "running"
        DONE = "done", "done"
        FAILED = "failed", "failed"
        CANCELLED = "cancelled", "cancelled"

    UNFINISHED = (State.QUEUED, State.RUNNING)

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="lab_runs")
    days = models.PositiveIntegerField(
        null=True,
        validators=[MinValueValidator(1), MaxValueValidator(MOST_DAYS)],
        help_text="Empty: an uploaded trace.",
    )
    trace_format = models.CharField(max_length=20, blank=True, help_text="Of the uploaded trace. Empty: the history.")
    policies = models.JSONField(help_text="Names, with parameters as in sia:power=-0.5.")
    round_length_s = models.FloatField(null=True, help_text="Empty: as it is now.")
    nodes = models.JSONField(default=dict, help_text="GPU type → nodes added, or taken if negative.")
    team_weights = models.JSONField(default=dict, help_text="Team → its weight in place of the present one.")
    quotas = models.JSONField(default=list, help_text="Quotas of teams on GPU types in place of the present ones.")
    budgets = models.JSONField(default=list, help_text="Budgets of teams in place of the present ones.")

    state = models.CharField(max_length=20, choices=State.choices, default=State.QUEUED)
    slot = models.PositiveSmallIntegerField(null=True, help_text="Of those that run at once.")
    tries = models.PositiveIntegerField(default=0, help_text="How often it was begun; only the last may write.")
    done = models.PositiveIntegerField(default=0, help_text="Jobs that have been simulated to their end, in all runs.")
    total = models.PositiveIntegerField(default=0, help_text="Jobs to simulate, in all runs; 0: not known yet.")
    result = models.JSONField(null=True)
    teams = models.JSONField(
        null=True, help_text="Keys of the teams whose jobs were simulated: it shows to those who may see all of them."
    )
    message = models.CharField(max_length=500, blank=True, help_text="Why it failed.")
    created_at = models.DateTimeField(default=timezone.now)
    heartbeat_at = models.DateTimeField(null=True, help_text="When its process was last heard of.")
    finished_at = models.DateTimeField(null=True)

    objects = LabRunQuerySet.as_manager()

    class Meta:
        ordering = ("-id",)
        indexes = [
            models.Index(fields=("id",), condition=Q(state__in=("queued", "running")), name="lab_run_unfinished"),
        ]
        constraints = [
            models.UniqueConstraint(fields=("slot",), condition=Q(state="running"), name="lab_run_one_in_a_slot"),
            models.CheckConstraint(
                condition=Q(state__in=("queued", "running", "done", "failed", "cancelled")), name="lab_run_state_known"
            ),
            models.CheckConstraint(
                condition=Q(finished_at=None) ^ Q(state__in=("done", "failed", "cancelled")),
                name="lab_run_finished_at_when_final",
            ),
            models.CheckConstraint(condition=Q(days__range=(1, MOST_DAYS)), name="lab_run_days_in_range"),
            models.CheckConstraint(condition=Q(days=None) ^ Q(trace_format=""), name="lab_run_history_or_trace"),
        ]

    def __str__(self) -> str:
        return f"lab run {self.pk}"

    @property
    def is_unfinished(self) -> bool:
        return self.state in LabRun.UNFINISHED

    @property
    def quota_words(self) -> list[str]:
        """The quotas that were asked for, as `vision 8 a100, 4 borrowed and 2 lent at most`."""
        return [_quota_in_words(**one) for one in self.quotas]

    @property
    def budget_words(self) -> list[str]:
        """The budgets that were asked for, as `vision 500 reference GPU-hours a month, hard`."""
        return [_budget_in_words(**one) for one in self.budgets]

    def shows_result_to(self, user: User) -> bool:
        """Whether the user may see the jobs of all teams that are in the result."""
        if user.is_staff or self.trace_format or self.result is None:
            return True
        return shows_to_teams(self.teams, frozenset(user.teams.values_list("pk", flat=True)))


class LabTrace(models.Model):
    """Files that were uploaded for a run, compressed; they are deleted with it."""

    run = models.OneToOneField(LabRun, on_delete=models.CASCADE, primary_key=True, related_name="trace")
    content = models.BinaryField()
    throughputs = models.BinaryField(help_text="Table of rates in Gavel's JSON format; empty: none.")

    def __str__(self) -> str:
        return f"trace of lab run {self.pk}"

    @classmethod
    def of(cls, run: LabRun, text: str, throughputs: str) -> Self:
        return cls(run=run, content=gzip.compress(text.encode()), throughputs=gzip.compress(throughputs.encode()))

    @property
    def text(self) -> str:
        return gzip.decompress(self.content).decode()

    @property
    def table(self) -> str:
        return gzip.decompress(self.throughputs).decode()


def shows_to_teams(teams: Sequence[int] | None, seen: Collection[int]) -> bool:
    """Whether a result with jobs of these teams shows to a person who may see jobs of those; None: not known."""
    return teams is not None and set(teams) <= set(seen)


def _quota_in_words(
    *, team: str, gpu_type: str, gpus: int | None, borrowing_limit: int | None, lending_limit: int | None
) -> str:
    if gpus is None:
        return f"{team} none on {gpu_type}"
    limits = [
        f"{most} {verb} at most"
        for most, verb in ((borrowing_limit, "borrowed"), (lending_limit, "lent"))
        if most is not None
    ]
    return f"{team} {gpus} {gpu_type}" + (f" ({', '.join(limits)})" if limits else "")


def _budget_in_words(*, team: str, gpu_hours: float | None, period: str, kind: str) -> str:
    return f"{team} none" if gpu_hours is None else f"{team} {gpu_hours:g} reference GPU-hours a {period} ({kind})"
