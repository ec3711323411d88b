"""Readings of GPUs by the minute: mean and highest of utilization, memory, power and temperature."""

from django.db import models
from django.db.models import Q

from cluster_app.models import Gpu
from jobs_app.models import Attempt


class GpuMinute(models.Model):
    """Readings of one GPU in one minute, while one attempt held it, or none did. Null: the driver does not say."""

    gpu = models.ForeignKey(Gpu, on_delete=models.CASCADE, db_index=False)  # with the minute
    attempt = models.ForeignKey(Attempt, null=True, on_delete=models.CASCADE, db_index=False)  # with the minute
    minute = models.DateTimeField()
    readings = models.PositiveSmallIntegerField(help_text="Number of readings: six in a whole minute.")
    utilization = models.FloatField(null=True, help_text="Per cent of the time in which a kernel ran.")
    utilization_max = models.FloatField(null=True)
    memory_used_mib = models.FloatField(null=True)
    memory_used_max_mib = models.FloatField(null=True)
    power_w = models.FloatField(null=True)
    power_max_w = models.FloatField(null=True)
    temperature_c = models.FloatField(null=True)
    temperature_max_c = models.FloatField(null=True)
    ecc_errors = models.PositiveBigIntegerField(null=True, help_text="Uncorrectable, since the GPU was last reset.")
    throttle = models.PositiveSmallIntegerField(default=0, help_text="Why it ran below its clock, as bits of NVML.")

    class Meta:
        indexes = [
            models.Index(fields=("minute",), name="gpu_minute_by_time"),
            models.Index(fields=("gpu", "minute"), name="gpu_minute_of_gpu"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=("attempt", "gpu", "minute"),
                condition=Q(attempt__isnull=False),
                name="gpu_minute_once_per_attempt",
            ),
            models.UniqueConstraint(
                fields=("gpu", "minute"), condition=Q(attempt=None), name="gpu_minute_once_without_attempt"
            ),
            models.CheckConstraint(condition=Q(readings__gte=1), name="gpu_minute_has_readings"),
        ]

    def __str__(self) -> str:
        return f"{self.gpu} at {self.minute:%F %H:%M}"
