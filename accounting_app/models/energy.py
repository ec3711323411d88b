"""Energy: nodes in use per GPU type in steps of ten minutes, and the last decisions of the sleep controller."""

from django.db import models

from cluster_app.models import GpuType


class NodeUse(models.Model):
    """Nodes of a GPU type in one step of ten minutes: the most that were in use at a time."""

    gpu_type = models.ForeignKey(GpuType, on_delete=models.CASCADE)
    at = models.DateTimeField(help_text="Start of the step.")
    used = models.PositiveIntegerField(help_text="Nodes with a claim on one of their GPUs: the most at a time.")
    nodes = models.PositiveIntegerField(help_text="Nodes with GPUs, at the last look.")
    asleep = models.PositiveIntegerField(default=0, help_text="Nodes that slept, at the last look.")

    class Meta:
        verbose_name_plural = "node use"
        indexes = [models.Index(fields=("at",), name="node_use_by_step")]
        constraints = [models.UniqueConstraint(fields=("gpu_type", "at"), name="node_use_once_per_step")]

    def __str__(self) -> str:
        return f"{self.gpu_type} at {self.at:%F %H:%M}: {self.used} of {self.nodes}"


class SleepAdvice(models.Model):
    """Last decision of the sleep controller for a GPU type, and the forecast on which it is based."""

    class Source(models.TextChoices):
        """Where the forecast comes from."""

        REGRESSION = "regression", "regression on the past nine days and more"
        LAST_VALUE = "last_value", "the last value: there are fewer than nine days of history"

    gpu_type = models.OneToOneField(GpuType, on_delete=models.CASCADE, primary_key=True)
    at = models.DateTimeField(help_text="Start of the step at which it was decided.")
    awake = models.PositiveIntegerField(help_text="Nodes that should be awake.")
    frozen_until = models.DateTimeField(help_text="No node is put to sleep before.")
    used = models.PositiveIntegerField(help_text="Nodes in use in the last whole step.")
    forecast = models.JSONField(default=list, help_text="Mean number of nodes in use over each horizon.")
    source = models.CharField(max_length=20, choices=Source.choices)
    model = models.JSONField(null=True, help_text="Coefficients of the regression for each horizon.")
    fitted_at = models.DateTimeField(null=True, help_text="When a fit was last tried.")

    class Meta:
        verbose_name_plural = "sleep advice"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(source__in=("last_value", "regression")), name="sleep_advice_source_known"
            )
        ]

    def __str__(self) -> str:
        return f"{self.gpu_type} at {self.at:%F %H:%M}: {self.awake} awake"
