"""Hours of quotas on GPU types: GPUs used and borrowed, and the shadow price (waiting that one more would save)."""

from django.db import models

from cluster_app.models import GpuType
from jobs_app.models import Team


class QuotaHour(models.Model):
    """Use and price of a quota in one hour (UTC), added up by rounds, each for the time since the last one."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE)
    gpu_type = models.ForeignKey(GpuType, on_delete=models.CASCADE)
    hour = models.DateTimeField()
    gpu_s = models.FloatField(default=0, help_text="GPU-seconds of the team on this type.")
    borrowed_gpu_s = models.FloatField(default=0, help_text="Those beyond its quota.")
    quota_s = models.FloatField(default=0, help_text="Seconds for which there was a quota.")
    priced_s = models.FloatField(default=0, help_text="Those of which the price is known.")
    saved_job_s = models.FloatField(
        default=0, help_text="Seconds of waiting, over all jobs, that one more GPU in the quota would have saved."
    )

    class Meta:
        indexes = [models.Index(fields=("hour",), name="quota_hour_by_hour")]
        constraints = [models.UniqueConstraint(fields=("team", "gpu_type", "hour"), name="quota_hour_once")]

    def __str__(self) -> str:
        return f"{self.team} on {self.gpu_type} at {self.hour:%F %H:%M}"
