"""GPUs of nodes, with their faults and their speed."""

from django.core.validators import MaxValueValidator
from django.db import models
from django.db.models import Q

from cluster_app.models.node import Node

MOST_GPUS_PER_NODE = 64


class GpuQuerySet(models.QuerySet["Gpu"]):
    def present(self) -> "GpuQuerySet":
        return self.filter(present=True)


class Gpu(models.Model):
    """One GPU. A GPU that was removed from its node stays as a row, because the history refers to it."""

    class FaultSource(models.TextChoices):
        """Source of a fault, which also clears it."""

        DRIVER = "driver", "the driver: as long as it says so"
        PROCESS = "process", "a process that no attempt accounts for: as long as it is seen"
        CORDON = "cordon", "a critical error, a hook or an administrator: until an administrator returns it"

    node = models.ForeignKey(Node, on_delete=models.CASCADE)
    index = models.PositiveSmallIntegerField(validators=[MaxValueValidator(MOST_GPUS_PER_NODE - 1)])
    uuid = models.CharField(max_length=80, blank=True)
    healthy = models.BooleanField(default=True, help_text="If not, it gets no new job; others of its node do.")
    fault = models.CharField(max_length=200, blank=True, default="", help_text="Why it gets no new job.")
    fault_source = models.CharField(max_length=20, choices=FaultSource.choices, blank=True, default="")
    stray_since = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="Since when a process is on it that no attempt accounts for."
    )
    stray_seen_at = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="When such a process was last seen, as long as GPUs are watched.",
    )
    slower_by = models.FloatField(
        default=0, editable=False, help_text="Part by which jobs ran slower on it than on others of its type; 0: none."
    )
    slower_by_jobs = models.PositiveIntegerField(default=0, editable=False, help_text="Jobs that tell it.")
    slower_together = models.PositiveSmallIntegerField(
        default=1,
        editable=False,
        help_text="GPUs of its node of which the same jobs tell: which of them is slow is not known; 1: it alone.",
    )
    speed_since = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="Runs from before tell nothing of its speed; empty: all do."
    )
    present = models.BooleanField(default=True)

    objects = GpuQuerySet.as_manager()

    class Meta:
        verbose_name = "GPU"
        ordering = ("node__name", "index")
        constraints = [
            models.UniqueConstraint(fields=("node", "index"), name="gpu_once_per_slot"),
            models.UniqueConstraint(fields=("uuid",), condition=~Q(uuid=""), name="gpu_uuid_once"),
            models.CheckConstraint(condition=Q(index__lt=MOST_GPUS_PER_NODE), name="gpu_index_in_range"),
            models.CheckConstraint(
                condition=Q(healthy=False) | Q(fault="", fault_source=""), name="gpu_healthy_without_fault"
            ),
            models.CheckConstraint(
                condition=Q(fault_source__in=("", "cordon", "driver", "process")), name="gpu_fault_source_known"
            ),
            models.CheckConstraint(condition=Q(slower_by__gte=0, slower_by__lt=1), name="gpu_slower_by_a_part"),
        ]

    def __str__(self) -> str:
        return f"{self.node}/{self.index}"

    @property
    def slowness(self) -> str:
        """`18 % slower than its kind, by 12 jobs`; empty: it is not known to be slow."""
        return slowness_in_words(self.slower_by, self.slower_by_jobs, self.slower_together)


def slowness_in_words(slower_by: float, jobs: int, together: int = 1) -> str:
    if not slower_by:
        return ""
    words = f"{slower_by:.0%} slower than its kind, by {jobs} jobs".replace("%", " %")
    return words if together == 1 else f"{words} that had {together} GPUs together"
