"""Rounds: the record of each scheduling decision, with the snapshot it was made from."""

from datetime import datetime

from django.db import models
from django.db.models import Q
from django.utils import timezone

from allocation.decision import Status

AFTER_COMMIT = "After the commit: "
"""Begins the message of a committed round that an error followed."""


class RoundQuerySet(models.QuerySet["Round"]):
    def committed(self) -> "RoundQuerySet":
        """Rounds that were committed, the latest first."""
        return self.filter(result=Round.Result.COMMITTED)

    def latest_committed(self) -> "Round | None":
        """The latest committed round, without its large archive."""
        return self.committed().defer("archive").first()


class Round(models.Model):
    """The record of a scheduling decision, with an archive from which it is explained and solved again."""

    class Result(models.TextChoices):
        COMMITTED = "committed", "committed"
        FAILED = "failed", "failed"

    number = models.PositiveBigIntegerField(primary_key=True)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(default=timezone.now)
    result = models.CharField(max_length=20, choices=Result.choices)
    message = models.CharField(max_length=500, blank=True)
    policy = models.CharField(max_length=60)
    parameters = models.JSONField(default=dict, help_text="Parameters of the policy, including defaults.")
    jobs = models.PositiveIntegerField(default=0)
    gpus = models.PositiveIntegerField(default=0)
    starts = models.PositiveIntegerField(default=0)
    stops = models.PositiveIntegerField(default=0)
    moves = models.PositiveIntegerField(default=0)
    objective = models.FloatField(null=True)
    bound = models.FloatField(null=True)
    gap = models.FloatField(null=True)
    status = models.CharField(max_length=30, blank=True, help_text="Status of the solver.")
    prices = models.JSONField(default=dict, help_text="GPU type → gain of the objective per additional GPU (dual).")
    seconds = models.JSONField(default=dict, help_text="Step of the round → seconds.")
    shares_since = models.DateTimeField(help_text="Start of the period in which time received counts.")
    last_job_event = models.PositiveBigIntegerField(default=0)
    last_node_event = models.PositiveBigIntegerField(default=0)
    archive = models.BinaryField(null=True, editable=False, help_text="Snapshot and decision, compressed.")

    objects = RoundQuerySet.as_manager()

    class Meta:
        ordering = ("-number",)
        indexes = [models.Index(fields=("started_at",), name="round_by_start")]
        constraints = [
            models.CheckConstraint(condition=Q(result__in=("committed", "failed")), name="round_result_known"),
        ]

    def __str__(self) -> str:
        return f"round {self.number}"

    def in_force_until(self) -> datetime:
        """Start of the next committed round, or now."""
        later = Round.objects.committed().filter(number__gt=self.number).order_by("number")
        return later.values_list("started_at", flat=True).first() or timezone.now()

    @property
    def is_followed_by_an_error(self) -> bool:
        """Whether storing reasons and figures after the commit failed."""
        return self.result == self.Result.COMMITTED and self.message.startswith(AFTER_COMMIT)

    @property
    def fell_back(self) -> bool:
        """Whether the policy's solver failed and a fallback decided: a queue, or the best solution found so far."""
        return self.status == Status.FALLBACK

    @property
    def ran_into_limit(self) -> bool:
        """Whether the time limit ended the solve, and its best certified decision was used."""
        return self.status == Status.LIMIT

    @property
    def outcome(self) -> str:
        """The result as counted in metrics: rounds that fell back or reached the limit are counted apart."""
        return self.status if self.fell_back or self.ran_into_limit else self.result
