"""Attempt: one execution of a job on certain GPUs, from the claim to the proof that no process is left."""

from datetime import datetime

from django.db import models
from django.db.models import Q
from django.utils import timezone

from cluster_app.models import GpuType
from jobs_app.models.job import Job

OUTCOMES = ("", "succeeded", "failed", "preempted", "moved", "requeued", "cancelled", "timed_out", "lost")
"""Of an attempt; empty: it has not ended."""


class AttemptQuerySet(models.QuerySet["Attempt"]):
    def live(self) -> "AttemptQuerySet":
        """By the index `attempt_live`, which SQLite uses for this condition alone, and not for states that imply it."""
        return self.exclude(state=Attempt.State.ENDED)

    def live_or_latest(self) -> "AttemptQuerySet":
        """Attempts that have not ended, and the latest of each job."""
        return self.filter(~models.Q(state=Attempt.State.ENDED) | models.Q(number=models.F("job__attempt_count")))

    def at_engine(self) -> "AttemptQuerySet":
        """Attempts that have been sent to an engine and have not ended."""
        return self.live().filter(state__in=Attempt.AT_ENGINE)

    def with_processes(self) -> "AttemptQuerySet":
        """Attempts that may still have processes, whether or not they have ended."""
        return self.filter(gone_at=None)


class Attempt(models.Model):
    """One attempt. The primary key identifies it at its engine; `number` counts the attempts of the job."""

    class State(models.TextChoices):
        CLAIMED = "claimed", "claimed"
        LAUNCHING = "launching", "launching"
        RUNNING = "running", "running"
        STOPPING = "stopping", "stopping"
        ENDED = "ended", "ended"

    AT_ENGINE = (State.LAUNCHING, State.RUNNING, State.STOPPING)

    class Outcome(models.TextChoices):
        SUCCEEDED = "succeeded", "succeeded"
        FAILED = "failed", "failed"
        PREEMPTED = "preempted", "preempted"
        MOVED = "moved", "moved"
        REQUEUED = "requeued", "requeued"
        CANCELLED = "cancelled", "cancelled"
        TIMED_OUT = "timed_out", "timed out"
        LOST = "lost", "lost"

    class StopReason(models.TextChoices):
        """Why the attempt is stopped."""

        PREEMPT = "preempt", "preempted for another job"
        MOVE = "move", "moved to other GPUs"
        REQUEUE = "requeue", "requeued by hand"
        WITHDRAW = "withdraw", "withdrawn from the site's queue"
        CANCEL = "cancel", "cancelled"
        TIMEOUT = "timeout", "time limit reached"
        DRAIN = "drain", "node drained"

    class RateSource(models.TextChoices):
        """Where the rate that the round counted on comes from; empty: placed before this was recorded."""

        MEASURED = "measured", "measured"
        DECLARED = "declared", "declared"
        COMPLETED = "completed", "completed from other workloads"
        FITTED = "fitted", "fitted to the workload's step times"
        ESTIMATED = "estimated", "estimated from the GPU types' specifications"
        ASSUMED = "assumed", "assumed, as no rate of the workload is known"

    class CpuMemory(models.TextChoices):
        """How the round chose its CPUs and memory; empty: as the job asked."""

        TUNED = "tuned", "by what they gain the job"
        TRIED = "tried", "more than were tried before, to measure what they gain"
        PROPORTIONAL = "proportional", "the node's share of its GPUs"
        REVERTED = "reverted", "the node's share of its GPUs, for want of more"
        RAISED = "raised", "what it started with, which others have left again"

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="attempts")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=20, choices=State.choices, default=State.CLAIMED)
    outcome = models.CharField(max_length=20, choices=Outcome.choices, blank=True)
    exit_code = models.IntegerField(null=True, blank=True)
    message = models.CharField(max_length=500, blank=True)

    gpu_type = models.ForeignKey(GpuType, on_delete=models.PROTECT)
    gpu_count = models.PositiveIntegerField()
    nodes = models.JSONField(default=list, help_text="Names of its nodes, in the order of ranks.")
    engine = models.CharField(max_length=40, help_text="Name of its engine.")
    devices = models.JSONField(
        default=dict, blank=True, help_text="Node → physical GPUs, where the site chose them; claims do not name them."
    )
    site_job = models.CharField(
        max_length=40, blank=True, help_text="Its number in the site's own queue, as squeue shows it; empty: none."
    )
    master_port = models.PositiveIntegerField()
    round_number = models.PositiveBigIntegerField(help_text="The round that placed it.")
    rate = models.FloatField(default=0, help_text="Steps/s (of the initial batch) that the round counted on.")
    rate_source = models.CharField(max_length=20, choices=RateSource.choices, blank=True, default="")
    measures = models.BooleanField(default=False, help_text="Placed on these GPUs to measure its rate on them.")
    batch_size = models.PositiveIntegerField(default=0, help_text="Samples of a step, as tuned; 0: the job's affair.")
    micro_batches = models.PositiveIntegerField(default=1, help_text="In how many parts a GPU does its share of them.")
    batch_choices = models.JSONField(
        default=list, blank=True, help_text="Batches that it may choose as it runs: samples, micro-batches, samples/s."
    )
    reported_batch = models.PositiveIntegerField(default=0, help_text="Samples of a step, as last reported; 0: never.")
    batch_changes = models.PositiveIntegerField(default=0, help_text="How often it reported another batch than before.")
    step_worth = models.FloatField(default=1, help_text="Steps of the initial batch that one of its steps is worth.")
    relative_speed = models.FloatField(default=1, help_text="Speed of its GPUs for this job, the average GPU being 1.")

    cpus_per_gpu = models.PositiveIntegerField(default=0, help_text="Of the round's choice; 0: as the job asked.")
    memory_per_gpu_mib = models.PositiveIntegerField(default=0, help_text="Of the round's choice; 0: as the job asked.")
    cpu_memory = models.CharField("CPUs and memory", max_length=20, choices=CpuMemory.choices, blank=True, default="")
    share_due = models.BooleanField(default=False, help_text="Changed by a round; its engine has yet to be told.")
    told_cpus_per_gpu = models.PositiveIntegerField(
        default=0, help_text="What it was launched with; 0: as the job asked."
    )
    peak_memory_mib = models.PositiveIntegerField(
        default=0, help_text="Most memory that it held on one of its nodes, without file caches; 0: not measured."
    )
    told_memory_per_gpu_mib = models.PositiveIntegerField(
        default=0, help_text="What it was launched with; 0: as the job asked."
    )

    claimed_at = models.DateTimeField(default=timezone.now)
    launched_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    code_s = models.FloatField(
        null=True, blank=True, help_text="Seconds in which its code and checkpoints came, before its processes started."
    )
    setup_s = models.FloatField(
        null=True, blank=True, help_text="Seconds from the start of its processes until it had its environment."
    )
    restore_s = models.FloatField(null=True, blank=True, help_text="Seconds that reading an earlier checkpoint took.")
    restored_at = models.DateTimeField(null=True, blank=True, help_text="When that was over; empty: it told of none.")
    stopping_at = models.DateTimeField(null=True, blank=True)
    stop_requested_at = models.DateTimeField(null=True, blank=True, help_text="When the engine was asked to stop it.")
    ended_at = models.DateTimeField(null=True, blank=True)
    gone_at = models.DateTimeField(null=True, blank=True, help_text="Proven: none of its processes is left.")

    stop_reason = models.CharField(max_length=20, choices=StopReason.choices, blank=True)
    stop_note = models.CharField(max_length=500, blank=True, help_text="Who or what it made room for.")

    first_step = models.PositiveBigIntegerField(null=True, blank=True)
    first_step_at = models.DateTimeField(null=True, blank=True)
    batch_step = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="Step from which the rate of its present batch is measured; empty: the first."
    )
    batch_step_at = models.DateTimeField(null=True, blank=True)
    step = models.PositiveBigIntegerField(null=True, blank=True)
    session_at = models.DateTimeField(null=True, blank=True, help_text="When a session in it was last in use.")
    step_at = models.DateTimeField(null=True, blank=True)
    reports = models.PositiveIntegerField(default=0)
    invalid_lines = models.PositiveIntegerField(
        default=0, help_text="Progress lines that could not be read; the job's history warns of the first."
    )
    loss = models.FloatField(null=True, blank=True)
    checkpoint_s = models.FloatField(null=True, blank=True, help_text="Seconds that its last checkpoint took.")
    checkpoint_times = models.JSONField(
        default=dict, blank=True, help_text="What it was told last from which it decides when to save; empty: nothing."
    )
    checkpoint_times_due = models.BooleanField(default=False, help_text="Changed; its engine has yet to be told.")
    checkpoint_at = models.DateTimeField(null=True, blank=True, help_text="When it was made.")
    personal_secrets = models.BooleanField(default=False, help_text="Launched with a secret of the job's owner.")
    idle_gpus = models.PositiveIntegerField("idle GPUs", default=0, help_text="GPUs of it that nothing runs on now.")
    idle_since = models.DateTimeField(null=True, blank=True, help_text="Since when all of these have been idle.")
    gpu_energy_j = models.FloatField(null=True, blank=True, help_text="Energy of its GPUs, as read; empty: not read.")
    work_lost_gpu_s = models.FloatField(default=0)

    objects = AttemptQuerySet.as_manager()

    class Meta:
        ordering = ("id",)
        indexes = [
            models.Index(fields=("id",), condition=~Q(state="ended"), name="attempt_live"),
            models.Index(fields=("id",), condition=Q(gone_at=None), name="attempt_ungone"),
            models.Index(fields=("ended_at",), name="attempt_by_end"),
        ]
        constraints = [
            models.UniqueConstraint(fields=("job", "number"), name="attempt_number_once"),
            models.UniqueConstraint(
                fields=("job",),
                condition=Q(state__in=("launching", "running", "stopping")),
                name="attempt_one_at_an_engine_per_job",
            ),
            models.UniqueConstraint(
                fields=("job",), condition=Q(state="claimed"), name="attempt_one_waiting_for_gpus_per_job"
            ),
            models.CheckConstraint(condition=Q(state="ended") ^ Q(outcome=""), name="attempt_outcome_when_ended"),
            models.CheckConstraint(condition=Q(state="ended") ^ Q(ended_at=None), name="attempt_ended_at_when_ended"),
            models.CheckConstraint(condition=Q(gpu_count__gt=0), name="attempt_has_gpus"),
            models.CheckConstraint(
                condition=Q(state__in=("claimed", "launching", "running", "stopping", "ended")),
                name="attempt_state_known",
            ),
            models.CheckConstraint(
                condition=Q(outcome__in=OUTCOMES),
                name="attempt_outcome_known",
            ),
            models.CheckConstraint(
                condition=Q(cpu_memory__in=("", "tuned", "tried", "proportional", "reverted", "raised")),
                name="attempt_cpu_memory_known",
            ),
            models.CheckConstraint(
                condition=Q(
                    rate_source__in=("", "measured", "declared", "completed", "fitted", "estimated", "assumed")
                ),
                name="attempt_rate_source_known",
            ),
            models.CheckConstraint(condition=Q(gone_at=None) | Q(state="ended"), name="attempt_gone_only_when_ended"),
        ]

    def __str__(self) -> str:
        return f"{self.job} #{self.number}"

    def ran_s(self, now: datetime) -> float:
        """Running time of its processes in seconds."""
        return ((self.ended_at or now) - self.started_at).total_seconds() if self.started_at else 0.0

    @property
    def goes_on_later(self) -> bool:
        """Whether its job is resumed after this end."""
        return self.outcome in STOPPED

    @property
    def replicas(self) -> int:
        """Replicas of the job's model: as many as GPUs, unless each takes several."""
        return self.gpu_count // self.job.replica.on(self.gpu_type.name)

    @property
    def own_rate(self) -> float:
        """Expected steps/s at its own batch size."""
        return self.rate / self.step_worth

    @property
    def expected_rate(self) -> float | None:
        """Steps/s that users are told to expect, at its own batch size; None: not known."""
        return told_rate(self.own_rate, self.rate_source) if self.rate else None

    @property
    def told_rate(self) -> float | None:
        """Steps/s (of the initial batch) that the round counted on, as users are told it."""
        return told_rate(self.rate, self.rate_source)

    @property
    def measured_rate(self) -> float | None:
        """Measured steps/s until the last progress report; None before the second.

        Of its present batch; as long as that has one report only, the mean over all of its batches.
        """
        rate = self.batch_rate
        return self._rate_since(self.first_step, self.first_step_at) if rate is None else rate

    @property
    def batch_rate(self) -> float | None:
        """Measured steps/s with its present batch; None before the second report of it."""
        if self.batch_step_at is None:
            return self._rate_since(self.first_step, self.first_step_at)
        return self._rate_since(self.batch_step, self.batch_step_at)

    def _rate_since(self, step: int | None, at: datetime | None) -> float | None:
        if not (self.step_at and at and self.step_at > at):
            return None
        return max((self.step or 0) - (step or 0), 0) / (self.step_at - at).total_seconds()  # it may have gone back


OF_MEASURED_RATE = ("first_step", "first_step_at", "batch_step", "batch_step_at", "step", "step_at")
"""Columns that `Attempt.measured_rate` and `batch_rate` need."""
ROUGH = (Attempt.RateSource.ESTIMATED, Attempt.RateSource.COMPLETED)
"""Sources of rates that are known by other GPUs alone: a third digit would mean nothing."""


def told_rate(rate: float, source: str) -> float | None:
    """A rate as users are told it: not at all if it is assumed, with two digits if it is known by other GPUs alone."""
    if source == Attempt.RateSource.ASSUMED:
        return None
    return float(f"{rate:.2g}") if source in ROUGH else rate


STOPPED = (Attempt.Outcome.PREEMPTED, Attempt.Outcome.MOVED, Attempt.Outcome.REQUEUED)
"""Outcomes after which the job goes on later."""
