"""What the scheduler keeps: its lease, its rounds, who has which GPU, the policy, and the ledger of delivered work."""

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from allocation.policies import POLICIES
from allocation.solve import Status
from cluster_app.models import Gpu, GpuType
from jobs_app.models import Attempt, Team


class SchedulerLease(models.Model):
    """The one row that makes one scheduler at a time; the round's number fences every write."""

    THE_ONE = 1

    holder = models.CharField(max_length=80, blank=True)
    expires_at = models.DateTimeField(default=timezone.now)
    listening_since = models.DateTimeField(default=timezone.now, help_text="Silence of nodes counts from here.")
    round_number = models.PositiveBigIntegerField(default=0)
    accrued_until = models.DateTimeField(null=True, help_text="The ledger is complete up to here.")
    pruned_at = models.DateTimeField(null=True, help_text="When what is out of date was last dropped.")

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="lease_is_one_row")]

    def __str__(self) -> str:
        return f"{self.holder or 'nobody'} until {self.expires_at:%H:%M:%S}, round {self.round_number}"


def policy_names() -> dict[str, str]:
    """Called by Django, so that a new policy needs no migration."""
    return {name: name for name in POLICIES}


class PolicySettingQuerySet(models.QuerySet["PolicySetting"]):
    def current(self) -> "PolicySetting":
        """The newest; before anybody chose, the defaults."""
        return self.order_by("-id").first() or PolicySetting()


class PolicySetting(models.Model):
    """How rounds are decided from now on. Rows are never changed: the newest counts, the others are history."""

    policy = models.CharField(max_length=60, choices=policy_names, default="max_min_fairness")
    parameters = models.JSONField(default=dict, blank=True, help_text="What is left out has its default.")
    round_length_s = models.FloatField(
        "round length (s)", default=60, validators=[MinValueValidator(1)], help_text="A decision is made so often."
    )
    min_run_s = models.FloatField(
        "least run (s)",
        default=300,
        validators=[MinValueValidator(0)],
        help_text="A job that was started is not preempted before it ran so long.",
    )
    solve_limit_part = models.FloatField(
        "time limit (part of a round)",
        default=0.5,
        validators=[MinValueValidator(0.01), MaxValueValidator(1)],
        help_text="When so much of a round's length went into deciding, the best certified decision counts.",
    )
    note = models.CharField(max_length=300, blank=True, help_text="Why it was changed.")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, editable=False, on_delete=models.SET_NULL
    )

    objects = PolicySettingQuerySet.as_manager()

    class Meta:
        ordering = ("-id",)
        constraints = [
            models.CheckConstraint(condition=Q(round_length_s__gte=1, min_run_s__gte=0), name="policy_times_in_range"),
            models.CheckConstraint(
                condition=Q(solve_limit_part__gte=0.01, solve_limit_part__lte=1), name="policy_limit_in_range"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.policy}, every {self.round_length_s:g} s"

    @property
    def solve_limit_s(self) -> float:
        """Seconds that a policy has for its decision."""
        return self.solve_limit_part * self.round_length_s


class Round(models.Model):
    """One decision, with what it was made from: it can be opened, explained and solved again."""

    class Result(models.TextChoices):
        COMMITTED = "committed", "committed"
        FAILED = "failed", "failed"

    number = models.PositiveBigIntegerField(primary_key=True)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(default=timezone.now)
    result = models.CharField(max_length=20, choices=Result.choices)
    message = models.CharField(max_length=500, blank=True)
    policy = models.CharField(max_length=60)
    parameters = models.JSONField(default=dict, help_text="Of the policy, in full.")
    jobs = models.PositiveIntegerField(default=0)
    gpus = models.PositiveIntegerField(default=0)
    starts = models.PositiveIntegerField(default=0)
    stops = models.PositiveIntegerField(default=0)
    moves = models.PositiveIntegerField(default=0)
    objective = models.FloatField(null=True)
    bound = models.FloatField(null=True)
    gap = models.FloatField(null=True)
    status = models.CharField(max_length=30, blank=True, help_text="What the solver said.")
    prices = models.JSONField(default=dict, help_text="GPU type → gain in the objective for one more GPU.")
    seconds = models.JSONField(default=dict, help_text="Step of the round → seconds.")
    shares_since = models.DateTimeField(help_text="Time received counts from here.")
    last_job_event = models.PositiveBigIntegerField(default=0)
    last_node_event = models.PositiveBigIntegerField(default=0)
    archive = models.BinaryField(null=True, editable=False, help_text="Snapshot and decision, compressed.")

    class Meta:
        ordering = ("-number",)
        indexes = [models.Index(fields=("started_at",), name="round_by_start")]
        constraints = [
            models.CheckConstraint(condition=Q(result__in=("committed", "failed")), name="round_result_known"),
        ]

    def __str__(self) -> str:
        return f"round {self.number}"

    @property
    def fell_back(self) -> bool:
        """The policy's solver failed, and a stand-in decided: a queue, or what was found until then."""
        return self.status == Status.FALLBACK

    @property
    def ran_into_limit(self) -> bool:
        """The round's time limit came before the policy was done: its best certified decision counts."""
        return self.status == Status.LIMIT

    @property
    def outcome(self) -> str:
        """The result, for who counts: a round that fell back, or whose time was over, is neither good nor failed."""
        return self.status if self.fell_back or self.ran_into_limit else self.result


class GpuClaimQuerySet(models.QuerySet["GpuClaim"]):
    def open(self) -> "GpuClaimQuerySet":
        return self.filter(released_at=None)

    def holding(self) -> "GpuClaimQuerySet":
        return self.open().exclude(held_from=None)

    def waiting(self) -> "GpuClaimQuerySet":
        return self.open().filter(held_from=None)


class GpuClaim(models.Model):
    """A GPU belongs to one attempt at a time, and at most one waits for it to be vacated. The database sees to it."""

    gpu = models.ForeignKey(Gpu, on_delete=models.PROTECT, related_name="claims")
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="claims")
    held_from = models.DateTimeField(null=True, blank=True, help_text="Empty: waits for the GPU to be vacated.")
    released_at = models.DateTimeField(null=True, blank=True)

    objects = GpuClaimQuerySet.as_manager()

    class Meta:
        verbose_name = "GPU claim"
        indexes = [models.Index(fields=("released_at",), name="claim_by_release")]
        constraints = [
            models.UniqueConstraint(
                fields=("gpu",), condition=Q(released_at=None, held_from__isnull=False), name="gpu_held_once"
            ),
            models.UniqueConstraint(
                fields=("gpu",), condition=Q(released_at=None, held_from=None), name="gpu_awaited_once"
            ),
            models.UniqueConstraint(fields=("gpu", "attempt"), name="gpu_once_per_attempt"),
            models.CheckConstraint(
                condition=Q(released_at=None) | Q(held_from=None) | Q(released_at__gte=F("held_from")),
                name="claim_released_after_held",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.gpu} by attempt {self.attempt_id}"


class TeamUsage(models.Model):
    """What a team was entitled to and got in one minute (fairness by delivered work)."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE)
    minute = models.DateTimeField()
    entitled_share_s = models.FloatField(default=0, help_text="Share of the cluster it was entitled to, x seconds.")
    active_s = models.FloatField(default=0, help_text="Seconds in which it had queued or running jobs.")
    gpu_s = models.FloatField(default=0, help_text="GPU-seconds held.")
    work_gpu_s = models.FloatField(default=0, help_text="GPU-seconds weighed by speed; the average GPU is 1.")

    class Meta:
        indexes = [models.Index(fields=("minute",), name="team_usage_by_minute")]
        constraints = [models.UniqueConstraint(fields=("team", "minute"), name="team_usage_once_per_minute")]

    def __str__(self) -> str:
        return f"{self.team} at {self.minute:%F %H:%M}"


class GpuTypeUsage(models.Model):
    """How busy the GPUs of a type were in one minute."""

    gpu_type = models.ForeignKey(GpuType, on_delete=models.CASCADE)
    minute = models.DateTimeField()
    busy_gpu_s = models.FloatField(default=0)
    present_gpu_s = models.FloatField(default=0)

    class Meta:
        indexes = [models.Index(fields=("minute",), name="type_usage_by_minute")]
        constraints = [models.UniqueConstraint(fields=("gpu_type", "minute"), name="type_usage_once_per_minute")]

    def __str__(self) -> str:
        return f"{self.gpu_type} at {self.minute:%F %H:%M}"
