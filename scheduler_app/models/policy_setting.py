"""The policy with its parameters and the timing of rounds: an append-only history whose newest row is in force."""

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

from allocation.policies import POLICIES


def policy_names() -> dict[str, str]:
    """Choices of the policy field; a callable, so that a new policy needs no migration."""
    return {name: name for name in POLICIES}


class PolicySettingQuerySet(models.QuerySet["PolicySetting"]):
    def current(self) -> "PolicySetting":
        """The newest setting, or the defaults if there is none."""
        return self.order_by("-id").first() or PolicySetting()


class PolicySetting(models.Model):
    """A choice of policy and timing. Rows are never changed: the newest is in force, the others are history."""

    class CpuMemory(models.TextChoices):
        """How CPUs and memory that no job asks for are shared."""

        PROPORTIONAL = "proportional", "in proportion to GPUs"
        TUNE = "tune", "by what they gain each job, none below its proportion"

    policy = models.CharField(max_length=60, choices=policy_names, default="motley")
    parameters = models.JSONField(default=dict, blank=True, help_text="Omitted parameters have their defaults.")
    round_length_s = models.FloatField(
        "round length (s)", default=60, validators=[MinValueValidator(1)], help_text="Time between two rounds."
    )
    min_run_s = models.FloatField(
        "minimum run time (s)",
        default=300,
        validators=[MinValueValidator(0)],
        help_text="A started job is not preempted before it has run this long, nor within half a round.",
    )
    solve_limit_part = models.FloatField(
        "time limit (part of a round)",
        default=0.5,
        validators=[MinValueValidator(0.01), MaxValueValidator(1)],
        help_text="Fraction of the round length after which the best certified decision so far is used.",
    )
    cpu_memory = models.CharField(
        "CPUs and memory",
        max_length=20,
        choices=CpuMemory.choices,
        default=CpuMemory.PROPORTIONAL,
        help_text="How jobs that ask for no fixed number of CPUs, or for no memory, share those of a node.",
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
            models.CheckConstraint(
                condition=Q(cpu_memory__in=("proportional", "tune")), name="policy_cpu_memory_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.policy}, every {self.round_length_s:g} s"

    @property
    def solve_limit_s(self) -> float:
        """Time limit of a decision."""
        return self.solve_limit_part * self.round_length_s
