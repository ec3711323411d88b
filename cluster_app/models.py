"""Inventory: GPU types, nodes, GPUs, and the history of nodes."""

from datetime import datetime, timedelta

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

SUSPECT_AFTER = timedelta(seconds=30)
LOST_AFTER = timedelta(seconds=300)
MOST_GPUS_PER_NODE = 64

name_is_plain = RegexValidator(
    r"\A[a-z0-9][a-z0-9._-]*\Z", "Use lower-case letters, digits, '.', '_' and '-'; start with a letter or a digit."
)

SPEED_IN_RANGE = "Write a number from 0.001 to 1000000."
is_speed = (MinValueValidator(1e-3, SPEED_IN_RANGE), MaxValueValidator(1e6, SPEED_IN_RANGE))


class GpuType(models.Model):
    """GPU type: speed, power and hourly price of one GPU."""

    name = models.CharField(max_length=40, unique=True, validators=[name_is_plain], help_text="As jobs write it: a100.")
    memory_mib = models.PositiveIntegerField("memory (MiB)")
    tflops = models.FloatField(
        "TFLOPS",
        null=True,
        validators=is_speed,
        help_text="Dense half-precision TFLOPS, the usual training precision. Empty: unknown.",
    )
    bandwidth_gbs = models.FloatField(
        "memory bandwidth (GB/s)", null=True, validators=is_speed, help_text="Empty: unknown."
    )
    power_w = models.FloatField("power (W)", default=300)
    price_per_hour = models.DecimalField("price per hour", max_digits=8, decimal_places=3, default=0)

    class Meta:
        verbose_name = "GPU type"
        ordering = ("name",)
        constraints = [
            models.CheckConstraint(
                condition=Q(memory_mib__gt=0, tflops__gt=0, bandwidth_gbs__gt=0),
                name="gpu_type_has_memory_and_speed",
                violation_error_message="Memory, TFLOPS and bandwidth must be greater than zero.",
            ),
            models.CheckConstraint(
                condition=Q(power_w__gte=0, price_per_hour__gte=0),
                name="gpu_type_power_and_price_not_negative",
                violation_error_message="Power and price cannot be negative.",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def missing_figures(self) -> list[str]:
        """Names of the figures that are unknown; estimated rates on this type are rough until they are entered."""
        figures = {"TFLOPS": self.tflops, "memory bandwidth": self.bandwidth_gbs}
        return [name for name, value in figures.items() if value is None]


class NodeQuerySet(models.QuerySet["Node"]):
    def schedulable(self) -> "NodeQuerySet":
        """Nodes that accept new jobs now."""
        return self.filter(state=Node.State.READY, health=Node.Health.HEALTHY)

    def with_gpu_counts(self) -> "NodeQuerySet":
        """Annotate `gpus`, the number of GPUs in the node."""
        return self.annotate(gpus=models.Count("gpu", filter=Q(gpu__present=True)))


class Node(models.Model):
    """Machine with GPUs of one type."""

    class State(models.TextChoices):
        """State that administrators set."""

        READY = "ready", "ready"
        CORDONED = "cordoned", "cordoned: no new jobs"
        DRAINING = "draining", "draining: jobs are moved away"

    class Health(models.TextChoices):
        """Health derived from heartbeats."""

        HEALTHY = "healthy", "healthy"
        SUSPECT = "suspect", "suspect: silent for a while"
        LOST = "lost", "lost: silent for too long"

    class Engine(models.TextChoices):
        LOCAL = "local", "local: processes on this machine"

    name = models.CharField(max_length=100, unique=True, validators=[name_is_plain])
    gpu_type = models.ForeignKey(GpuType, on_delete=models.PROTECT, verbose_name="GPU type")
    cpus = models.PositiveIntegerField("CPUs", validators=[MinValueValidator(1)])
    memory_mib = models.PositiveIntegerField("memory (MiB)", validators=[MinValueValidator(1)])
    engine = models.CharField(max_length=20, choices=Engine.choices, default=Engine.LOCAL)
    labels = models.JSONField(default=dict, blank=True)
    emulated = models.BooleanField(default=False, help_text="Its GPUs are emulated: jobs imitate their speed.")
    state = models.CharField(max_length=20, choices=State.choices, default=State.READY)
    reason = models.CharField(max_length=200, blank=True, help_text="Why it is cordoned or draining.")
    health = models.CharField(max_length=20, choices=Health.choices, default=Health.HEALTHY)
    heard_at = models.DateTimeField("last heard", null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = NodeQuerySet.as_manager()

    class Meta:
        ordering = ("name",)
        constraints = [
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
            models.CheckConstraint(condition=Q(state__in=("cordoned", "draining", "ready")), name="node_state_known"),
            models.CheckConstraint(condition=Q(health__in=("healthy", "lost", "suspect")), name="node_health_known"),
        ]

    def __str__(self) -> str:
        return self.name

    def health_at(self, now: datetime, *, listening_since: datetime) -> "Node.Health":
        """Health from the time since the last heartbeat, not counting the time in which no scheduler listened."""
        silence = now - max(self.heard_at or self.created_at, listening_since)
        if silence > LOST_AFTER:
            return Node.Health.LOST
        return Node.Health.SUSPECT if silence > SUSPECT_AFTER else Node.Health.HEALTHY


class GpuQuerySet(models.QuerySet["Gpu"]):
    def present(self) -> "GpuQuerySet":
        return self.filter(present=True)


class Gpu(models.Model):
    """One GPU. A GPU that was removed from its node stays as a row, because the history refers to it."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE)
    index = models.PositiveSmallIntegerField(validators=[MaxValueValidator(MOST_GPUS_PER_NODE - 1)])
    uuid = models.CharField(max_length=80, blank=True)
    healthy = models.BooleanField(default=True)
    present = models.BooleanField(default=True)

    objects = GpuQuerySet.as_manager()

    class Meta:
        verbose_name = "GPU"
        ordering = ("node__name", "index")
        constraints = [
            models.UniqueConstraint(fields=("node", "index"), name="gpu_once_per_slot"),
            models.UniqueConstraint(fields=("uuid",), condition=~Q(uuid=""), name="gpu_uuid_once"),
            models.CheckConstraint(condition=Q(index__lt=MOST_GPUS_PER_NODE), name="gpu_index_in_range"),
        ]

    def __str__(self) -> str:
        return f"{self.node}/{self.index}"


class NodeEvent(models.Model):
    """Event in the history of a node; it also wakes the scheduler."""

    class Kind(models.TextChoices):
        ADDED = "added", "added"
        CHANGED = "changed", "changed"
        CORDONED = "cordoned", "cordoned"
        DRAINED = "drained", "drain began"
        RESUMED = "resumed", "resumed"
        HEALTH = "health", "health changed"

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField(default=timezone.now)
    kind = models.CharField(max_length=20, choices=Kind.choices)
    message = models.CharField(max_length=300, blank=True)
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL)

    class Meta:
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"{self.node} {self.kind}"
