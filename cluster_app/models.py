"""Inventory: GPU types, engines, nodes, GPUs, storage, and the history of nodes."""

from datetime import datetime, timedelta
from typing import Self, TypeVar
from zoneinfo import available_timezones

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

SUSPECT_AFTER = timedelta(seconds=30)
LOST_AFTER = timedelta(seconds=300)
MOST_GPUS_PER_NODE = 64

name_is_plain = RegexValidator(
    r"\A[a-z0-9][a-z0-9._-]*\Z", "Use lower-case letters, digits, '.', '_' and '-'; start with a letter or a digit."
)


def zone_is_known(name: str) -> None:
    if name not in available_timezones():
        raise ValidationError(
            "%(name)s is no time zone of the tz database, such as Europe/Berlin.", params={"name": name}
        )


storage_name_is_plain = RegexValidator(
    r"\A[a-z][a-z0-9_]*\Z",
    "Use lower-case letters, digits and '_', and start with a letter: jobs find the path in MOTLEY_MOUNT_<NAME>.",
)
path_is_absolute = RegexValidator(
    r"\A/(?!.*(?:\A|/)\.\.(?:/|\Z))[^\0\r\n]*\Z", "Write an absolute path without '..', such as /mnt/data."
)

SPEED_IN_RANGE = "Write a number from 0.001 to 1000000."
is_speed = (MinValueValidator(1e-3, SPEED_IN_RANGE), MaxValueValidator(1e6, SPEED_IN_RANGE))


Row_co = TypeVar("Row_co", bound=models.Model, covariant=True)


class RetiringQuerySet(models.QuerySet[Row_co]):
    """Rows with a past, which are retired instead of deleted."""

    def current(self) -> Self:
        """Those that are not retired."""
        return self.filter(retired_at=None)


RETIRED_AT = "Since when it is out of use for good, and kept because the history refers to it. Empty: it is in use."


class GpuTypeQuerySet(RetiringQuerySet["GpuType"]):
    """GPU types."""


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
    idle_w_per_gpu = models.FloatField(
        "node power idle, per GPU (W)",
        default=100,
        help_text="Of a node without jobs, for each of its GPUs: 100 W is 0.8 kW for a node of eight.",
    )
    asleep_w_per_gpu = models.FloatField(
        "node power asleep, per GPU (W)",
        default=2,
        help_text="Of a node that sleeps, for each of its GPUs: its management controller stays on.",
    )
    boot_s = models.PositiveIntegerField(
        "boot time (s)",
        default=300,
        validators=[MinValueValidator(1)],
        help_text="From the command to wake a node until its engine hears of it.",
    )
    retired_at = models.DateTimeField("retired", null=True, editable=False, help_text=RETIRED_AT)

    objects = GpuTypeQuerySet.as_manager()

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
            models.CheckConstraint(
                condition=Q(asleep_w_per_gpu__gte=0, idle_w_per_gpu__gte=F("asleep_w_per_gpu")),
                name="gpu_type_node_power_falls_asleep",
                violation_error_message="A node that sleeps takes no more power than an idle one.",
            ),
            models.CheckConstraint(
                condition=Q(boot_s__gte=1),
                name="gpu_type_boot_takes_time",
                violation_error_message="A boot takes a second at least.",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def missing_figures(self) -> list[str]:
        """Names of the figures that are unknown; estimated rates on this type are rough until they are entered."""
        figures = {"TFLOPS": self.tflops, "memory bandwidth": self.bandwidth_gbs}
        return [name for name, value in figures.items() if value is None]


class Engine(models.Model):
    """Engine that runs attempts: how it is reached, whether it answers, and the nodes that it reported."""

    class Kind(models.TextChoices):
        LOCAL = "local", "local: processes on this machine"
        SLURM = "slurm", "Slurm: jobs of a Slurm cluster"
        AGENT = "agent", "agent: a machine that has joined with a token"

    name = models.CharField(max_length=40, unique=True, validators=[name_is_plain], help_text="As nodes name it: hpc.")
    kind = models.CharField(max_length=20, choices=Kind.choices)
    options = models.JSONField(
        default=dict,
        blank=True,
        help_text='A map. Local: empty. Slurm: at least the folder that all nodes share, {"root": "/shared/motley"}.',
    )
    enabled = models.BooleanField(default=True, help_text="If not, no new jobs are started there; running jobs go on.")
    trusted = models.BooleanField(
        default=True,
        help_text="Its machines may have secrets of jobs. A machine that joined gets them only if trusted.",
    )
    heard_at = models.DateTimeField("last heard", null=True, blank=True, editable=False)
    since = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="Since when it has answered or, with a fault, has not."
    )
    fault = models.CharField(max_length=500, blank=True, editable=False, help_text="Empty: it answers.")
    retry_at = models.DateTimeField(null=True, blank=True, editable=False, help_text="It is not asked before.")
    inventory = models.JSONField(default=dict, blank=True, editable=False, help_text="Reported nodes by name.")

    class Meta:
        ordering = ("name",)
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=("agent", "local", "slurm")), name="engine_kind_known")
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def answers(self) -> bool:
        """Whether it answered when it was last asked."""
        return self.heard_at is not None and not self.fault

    @property
    def saves_power(self) -> bool:
        """Whether its site puts nodes to sleep and wakes them, by an option that only some kinds have."""
        return self.options.get("power_saving") is True


LOCAL_ENGINE = "local"
"""Name of the engine of this machine, which a migration adds."""


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
        VOLUNTEER = "volunteer", "volunteer: lent while somebody does not use it"

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
        "price per GPU hour",
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

    def health_at(self, now: datetime, *, listening_since: datetime, answering_since: datetime | None) -> "Node.Health":
        """Health from the time since the last heartbeat, not counting the time in which no scheduler listened.

        Unknown until its engine hears from it.
        `answering_since`: since when the engine has answered; None: it does not, which proves no node dead.
        """
        if self.heard_at is None:
            return Node.Health.UNKNOWN
        silence = now - max(self.heard_at, listening_since)
        if silence <= SUSPECT_AFTER:
            return Node.Health.HEALTHY
        if answering_since is None:
            return Node.Health.LOST if self.health == Node.Health.LOST else Node.Health.SUSPECT
        proven = min(silence, now - answering_since) > LOST_AFTER
        return Node.Health.LOST if proven else Node.Health.SUSPECT


POWERED_DOWN = (Node.State.SLEEPING, Node.State.WAKING)
"""States in which a node is silent, and not lost."""
UNHEARD = (*POWERED_DOWN, Node.State.RETIRED)
"""States in which the silence of a node says nothing."""
FOREIGN_USE = ("foreign_gpus", "foreign_cpus", "foreign_memory_mib")
"""Columns of a node that say what jobs outside Motley use of it."""


class GpuQuerySet(models.QuerySet["Gpu"]):
    def present(self) -> "GpuQuerySet":
        return self.filter(present=True)


class Gpu(models.Model):
    """One GPU. A GPU that was removed from its node stays as a row, because the history refers to it."""

    class FaultSource(models.TextChoices):
        """Who found the fault, and takes it back when it is over."""

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


class Storage(models.Model):
    """Path of a named storage on the nodes of an engine, or of one GPU type there. Motley mounts nothing."""

    name = models.CharField(
        max_length=40, validators=[storage_name_is_plain], help_text="As jobs write it under `mounts`: data."
    )
    engine = models.ForeignKey(Engine, on_delete=models.CASCADE, to_field="name", db_column="engine")
    gpu_type = models.ForeignKey(
        GpuType,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        verbose_name="GPU type",
        help_text="Empty: all nodes of the engine. A row with a GPU type comes before one without.",
    )
    path = models.CharField(
        max_length=500,
        validators=[path_is_absolute],
        help_text="Of a folder or file that each of these nodes has, and that the account of jobs may read.",
    )

    class Meta:
        verbose_name_plural = "storage"
        ordering = ("name", "engine", "gpu_type__name")
        constraints = [
            models.UniqueConstraint(
                fields=("name", "engine"),
                condition=Q(gpu_type=None),
                name="storage_once_per_engine",
                violation_error_message="This engine has a path for this name already: change that row.",
            ),
            models.UniqueConstraint(
                fields=("name", "engine", "gpu_type"),
                name="storage_once_per_engine_and_gpu_type",
                violation_error_message="This GPU type there has a path for this name already: change that row.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} on {self.engine_id}" + (f", {self.gpu_type}" if self.gpu_type else "")


class MissingStorage(models.Model):
    """A storage that an attempt did not find on a node: jobs that name it are not placed there for a while."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE)
    name = models.CharField(max_length=40)
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=("node", "name"), name="missing_storage_once_per_node")]

    def __str__(self) -> str:
        return f"{self.name} on {self.node}"


class NodeEvent(models.Model):
    """Event in the history of a node; it also wakes the scheduler."""

    class Kind(models.TextChoices):
        ADDED = "added", "added"
        CHANGED = "changed", "changed"
        CORDONED = "cordoned", "cordoned"
        DRAINED = "drained", "drain began"
        EMPTIED = "emptied", "drained: no jobs are left"
        RESUMED = "resumed", "resumed"
        RETIRED = "retired", "retired"
        RESTORED = "restored", "restored"
        STORAGE = "storage", "storage missing"
        SLEPT = "slept", "put to sleep"
        WOKEN = "woken", "being woken"
        AWAKE = "awake", "awake again"
        HEALTH = "health", "health changed"
        GPU = "gpu", "a GPU out of service or back"
        SPEED = "speed", "a GPU slow or no longer"

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField(default=timezone.now)
    kind = models.CharField(max_length=20, choices=Kind.choices)
    message = models.CharField(max_length=300, blank=True)
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL)

    class Meta:
        ordering = ("-id",)
        indexes = [models.Index(fields=("at",), name="node_event_by_time")]

    def __str__(self) -> str:
        return f"{self.node} {self.kind}"


class NodeInterval(models.Model):
    """Time in which a node was up, or down, without a break: observations of how long nodes stay."""

    class End(models.TextChoices):
        CHANGED = "changed", "it went, or came back"
        ANNOUNCED = "announced", "it went after it had been drained"
        CENSORED = "censored", "not known: it was put to sleep, or what followed was another machine"

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="intervals", db_index=False)
    up = models.BooleanField()
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    end = models.CharField(max_length=20, choices=End.choices, blank=True, help_text="Empty: it goes on.")

    class Meta:
        ordering = ("-id",)
        indexes = [
            models.Index(fields=("node", "-id"), name="interval_of_node"),
            models.Index(fields=("ended_at",), name="interval_by_end"),
        ]
        constraints = [
            models.UniqueConstraint(fields=("node",), condition=Q(ended_at=None), name="interval_one_open_per_node"),
            models.CheckConstraint(condition=Q(ended_at=None) ^ ~Q(end=""), name="interval_ended_at_with_its_end"),
            models.CheckConstraint(
                condition=Q(end__in=("", "announced", "censored", "changed")), name="interval_end_known"
            ),
            models.CheckConstraint(
                condition=Q(ended_at=None) | Q(ended_at__gte=models.F("started_at")), name="interval_ends_after_start"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.node} {'up' if self.up else 'down'} from {self.started_at}"


FIRST_PAUSE = timedelta(seconds=10)
"""After a power command that failed, or of whose end nobody heard, before the next for that node."""


class NodePower(models.Model):
    """Power command of a node that was put to sleep, or is being woken; the row goes when it is awake."""

    node = models.OneToOneField(Node, on_delete=models.CASCADE, primary_key=True, related_name="power")
    since = models.DateTimeField(help_text="When it was put to sleep, or began to be woken.")
    sent_at = models.DateTimeField(null=True, help_text="When the command was last started.")
    done_at = models.DateTimeField(null=True, help_text="When the command ended well.")
    fault = models.CharField(max_length=500, blank=True, help_text="Why the command failed the last time.")
    times = models.PositiveIntegerField(default=0, help_text="How often the command has failed.")
    failed_at = models.DateTimeField(null=True, help_text="When the command failed for the first time.")
    retry_at = models.DateTimeField(null=True, help_text="It is not started, or started again, before.")
    silent_at = models.DateTimeField(null=True, help_text="When the silence of the node was noticed: it is off.")

    def __str__(self) -> str:
        return f"{self.node} since {self.since:%F %T}"

    @property
    def over_at(self) -> datetime | None:
        """When a command of whose end nobody has heard is over all the same; None: there is no such command."""
        if self.sent_at is None or self.done_at is not None:
            return None
        timeout: timedelta = settings.MOTLEY_NODE_POWER_TIMEOUT
        return self.sent_at + timeout + FIRST_PAUSE
