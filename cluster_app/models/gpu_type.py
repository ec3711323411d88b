"""GPU types."""

from typing import Self

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q

from cluster_app.models.retiring import RETIRED_AT, RetiringQuerySet
from cluster_app.models.validators import name_is_plain

SPEED_IN_RANGE = "Write a number from 0.001 to 1000000."
is_speed = (MinValueValidator(1e-3, SPEED_IN_RANGE), MaxValueValidator(1e6, SPEED_IN_RANGE))


class GpuTypeQuerySet(RetiringQuerySet["GpuType"]):
    """GPU types."""

    def emulated(self) -> Self:
        """GPU types whose nodes are all emulated: readings of their GPUs are generated."""
        return self.filter(node__emulated=True).exclude(node__emulated=False).distinct()


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
