"""Nodes: machines with GPUs, their states and their health."""

from datetime import timedelta

from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

from cluster_app.models.engine import LOCAL_ENGINE, Engine
from cluster_app.models.gpu_type import GpuType
from cluster_app.models.validators import name_is_plain, zone_is_known

SUSPECT_AFTER = timedelta(seconds=30)
LOST_AFTER = timedelta(seconds=300)


class NodeQuerySet(models.QuerySet["Node"]):
    def current(self) -> "NodeQuerySet":
        """Nodes that are not retired."""
        return self.exclude(state=Node.State.RETIRED)

    def schedulable(self) -> "NodeQuerySet":
        """Nodes that accept new jobs now."""
        return self.filter(in_service())

    def with_gpu_counts(self) -> "NodeQuerySet":
        """Annotate `gpus`, the number of GPUs in the node, and `slow_gpus` of them."""
        present = Q(gpu__present=True)
        slow = models.Count("gpu", filter=present & Q(gpu__slower_by__gt=0))
        return self.annotate(gpus=models.Count("gpu", filter=present), slow_gpus=slow)


def in_service(path: str = "") -> Q:
    """Condition that a node accepts new jobs, for a query in which `path` leads to the node: `node__`."""
    accepts = {
        "state": Node.State.READY,
        "health": Node.Health.HEALTHY,
        "engine_reason": "",
        "engine__enabled": True,
        "engine__fault": "",
    }
    return Q(**{path + name: value for name, value in accepts.items()})


class Node(models.Model):
    """Machine with GPUs of one type."""

    class State(models.TextChoices):
        """State that administrators set; sleeping and waking the scheduler, to save energy."""

        READY = "ready", "ready"
        CORDONED = "cordoned", "cordoned: no new jobs"
        DRAINING = "draining", "draining: jobs are moved away"
        DRAINED = "drained", "drained: no jobs are left"
        SLEEPING = "sleeping", "sleeping: to save energy"
        WAKING = "waking", "waking: it is starting up"
        RETIRED = "retired", "retired: out of use for good, kept for its history"

    class Health(models.TextChoices):
        """Health derived from heartbeats."""

        UNKNOWN = "unknown", "unknown: no engine has heard of it yet"
        HEALTHY = "healthy", "healthy"
        SUSPECT = "suspect", "suspect: silent for a while"
        LOST = "lost", "lost: silent for too long"

    class CapacityType(models.TextChoices):
        """How long the machine may be expected to stay."""

        STABLE = "stable", "stable: there until it is taken out of service"
        SPOT = "spot", "spot: its owner may take it back at any time"
        VOLUNTEER = "volunteer", "volunteer: lent while its owner does not use it"

    name = models.CharField(max_length=100, unique=True, validators=[name_is_plain])
    gpu_type = models.ForeignKey(GpuType, on_delete=models.PROTECT, verbose_name="GPU type")
    cpus = models.PositiveIntegerField("CPUs", validators=[MinValueValidator(1)])
    memory_mib = models.PositiveIntegerField("memory (MiB)", validators=[MinValueValidator(1)])
    storage_mib_s = models.PositiveIntegerField(
        "storage bandwidth (MiB/s)",
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Of reading data sets; the node's GPUs share it. Empty: unknown.",
    )
    engine = models.ForeignKey(
        Engine, on_delete=models.PROTECT, to_field="name", db_column="engine", default=LOCAL_ENGINE
    )
    labels = models.JSONField(default=dict, blank=True)
    emulated = models.BooleanField(default=False, help_text="Its GPUs are emulated: jobs imitate their speed.")
    capacity_type = models.CharField(
        max_length=20,
        choices=CapacityType.choices,
        default=CapacityType.STABLE,
        help_text="Nodes of one type tell how long a new one of it stays, until it has a history of its own.",
    )
    notice_s = models.PositiveIntegerField(
        "notice (s)",
        default=0,
        help_text="Seconds between the announcement that it goes, by a drain, and its end. 0: it goes without notice.",
    )
    price_per_gpu_hour = models.DecimalField(
        "price per GPU-hour",
        max_digits=8,
        decimal_places=3,
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text="By which jobs prefer nodes of one GPU type; accounts are at the type's price. Empty: the type's.",
    )
    lent_from = models.TimeField(
        null=True,
        blank=True,
        help_text="Time of day from which its owner lends it. Empty: it is there at all hours.",
    )
    lent_until = models.TimeField(
        null=True,
        blank=True,
        help_text="Time of day at which its owner has it back; the notice before, its jobs are moved away.",
    )
    lent_zone = models.CharField(
        "time zone of these times",
        max_length=50,
        default="UTC",
        validators=[zone_is_known],
        help_text="As in the tz database: Europe/Berlin.",
    )
    retired_gpus = models.PositiveSmallIntegerField(
        default=0, editable=False, help_text="GPUs that it had when it was retired, and has again once it is restored."
    )
    given_back = models.BooleanField(
        default=False, editable=False, help_text="It is drained because its owner has it back, until it is lent again."
    )
    maintenance_until = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="It is drained for a maintenance window, until then."
    )
    state = models.CharField(max_length=20, choices=State.choices, default=State.READY)
    reason = models.CharField(max_length=200, blank=True, help_text="Why it is cordoned or draining.")
    health = models.CharField(max_length=20, choices=Health.choices, default=Health.UNKNOWN)
    engine_reason = models.CharField(
        max_length=200,
        blank=True,
        editable=False,
        help_text="Why its engine gives it no new jobs, in the site's words.",
    )
    limits = models.CharField(
        max_length=500,
        blank=True,
        default="",
        editable=False,
        help_text="Which limits of jobs are enforced there, and how, as its engine reports.",
    )
    containers = models.CharField(
        max_length=100,
        blank=True,
        default="",
        editable=False,
        help_text="The container runtime there, as its engine reports; empty: it runs none.",
    )
    foreign_gpus = models.PositiveSmallIntegerField(
        default=0,
        editable=False,
        help_text="GPUs that jobs outside Motley use now, or leave no CPUs or memory for, as its engine reports.",
    )
    foreign_cpus = models.PositiveIntegerField(
        default=0, editable=False, help_text="CPUs that jobs outside Motley use now, as its engine reports."
    )
    foreign_memory_mib = models.PositiveIntegerField(
        default=0, editable=False, help_text="MiB of memory that jobs outside Motley use now, as its engine reports."
    )
    heard_at = models.DateTimeField("last heard", null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = NodeQuerySet.as_manager()

    class Meta:
        ordering = ("name",)
        indexes = [
            models.Index(fields=("lent_from",), name="node_lent", condition=Q(lent_from__isnull=False)),
            models.Index(fields=("given_back",), name="node_given_back", condition=Q(given_back=True)),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(lent_from=None, lent_until=None) | Q(lent_from__isnull=False, lent_until__isnull=False),
                name="node_lent_from_and_until",
                violation_error_message="Give both times of the window, or none.",
            ),
            models.CheckConstraint(
                condition=Q(cpus__gt=0, memory_mib__gt=0),
                name="node_has_cpus_and_memory",
                violation_error_message="CPUs and memory must be greater than zero.",
            ),
            models.CheckConstraint(
                condition=Q(state="ready") | ~Q(reason=""),
                name="node_out_of_service_has_a_reason",
                violation_error_message="Say why the node is cordoned or draining.",
            ),
            models.CheckConstraint(
                condition=Q(state__in=("cordoned", "drained", "draining", "ready", "retired", "sleeping", "waking")),
                name="node_state_known",
            ),
            models.CheckConstraint(
                condition=Q(price_per_gpu_hour=None) | Q(price_per_gpu_hour__gte=0),
                name="node_price_not_negative",
                violation_error_message="The price cannot be negative.",
            ),
            models.CheckConstraint(
                condition=Q(capacity_type__in=("spot", "stable", "volunteer")), name="node_capacity_type_known"
            ),
            models.CheckConstraint(
                condition=Q(health__in=("healthy", "lost", "suspect", "unknown")), name="node_health_known"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Refuse half a window, and one without hours."""
        if (self.lent_from is None) != (self.lent_until is None):
            missing = "lent_from" if self.lent_from is None else "lent_until"
            raise ValidationError({missing: "Give both times, or none for a node that is there at all hours."})
        if self.lent_from is not None and self.lent_from == self.lent_until:
            raise ValidationError({"lent_until": "Both times are the same: leave both empty for all hours."})


POWERED_DOWN = (Node.State.SLEEPING, Node.State.WAKING)
"""States in which a node is silent, and not lost."""
UNHEARD = (*POWERED_DOWN, Node.State.RETIRED)
"""States in which the silence of a node says nothing."""
FOREIGN_USE = ("foreign_gpus", "foreign_cpus", "foreign_memory_mib")
"""Columns of a node that say what jobs outside Motley use of it."""
