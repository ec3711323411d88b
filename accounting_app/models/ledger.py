"""The usage ledger: per minute and per day, GPU time and work of each team; per minute, how busy each GPU type was."""

from django.db import models

from cluster_app.models import GpuType
from jobs_app.models import Team


class TeamUsage(models.Model):
    """Entitlement and delivered work of a team in one minute."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE)
    minute = models.DateTimeField()
    entitled_share_s = models.FloatField(default=0, help_text="Entitled share of the cluster, times seconds.")
    active_s = models.FloatField(default=0, help_text="Seconds in which it had queued or running jobs.")
    gpu_s = models.FloatField(default=0, help_text="GPU-seconds held.")
    work_gpu_s = models.FloatField(default=0, help_text="GPU-seconds weighted by speed; the average GPU counts as 1.")
    waiting_gpu_s = models.FloatField(default=0, help_text="GPUs that its waiting jobs asked for, times seconds.")

    class Meta:
        indexes = [models.Index(fields=("minute",), name="team_usage_by_minute")]
        constraints = [models.UniqueConstraint(fields=("team", "minute"), name="team_usage_once_per_minute")]

    def __str__(self) -> str:
        return f"{self.team} at {self.minute:%F %H:%M}"


class TeamBacklog(models.Model):
    """Virtual queue of a team: work that it was entitled to and did not receive, in seconds of the whole cluster."""

    team = models.OneToOneField(Team, on_delete=models.CASCADE, primary_key=True)
    cluster_s = models.FloatField("backlog (cluster-seconds)", default=0)

    def __str__(self) -> str:
        return f"{self.team}: {self.cluster_s:g} cluster-seconds"


class DailyUsage(models.Model):
    """GPU time of a team on a GPU type in one day (UTC): it stays when jobs and minutes are deleted."""

    team = models.ForeignKey(Team, on_delete=models.PROTECT)
    gpu_type = models.ForeignKey(GpuType, on_delete=models.PROTECT)
    day = models.DateField()
    gpu_s = models.FloatField(default=0, help_text="GPU-seconds held.")
    work_gpu_s = models.FloatField(default=0, help_text="GPU-seconds weighted by speed; the average GPU counts as 1.")
    read_energy_j = models.FloatField(default=0, help_text="Energy of its GPUs, as read.")
    read_gpu_s = models.FloatField(default=0, help_text="GPU-seconds of which it was read.")
    watched_gpu_s = models.FloatField(default=0, help_text="GPU-seconds of which utilization was read.")
    idle_gpu_s = models.FloatField(default=0, help_text="Of these, in which it was below 5 %.")

    class Meta:
        verbose_name_plural = "daily usage"
        indexes = [models.Index(fields=("day",), name="daily_usage_by_day")]
        constraints = [models.UniqueConstraint(fields=("team", "gpu_type", "day"), name="daily_usage_once_per_day")]

    def __str__(self) -> str:
        return f"{self.team} on {self.gpu_type}, {self.day:%F}"


class GpuTypeUsage(models.Model):
    """Busy and present GPU time of a GPU type in one minute."""

    gpu_type = models.ForeignKey(GpuType, on_delete=models.CASCADE)
    minute = models.DateTimeField()
    busy_gpu_s = models.FloatField(default=0)
    present_gpu_s = models.FloatField(default=0)
    starting_gpu_s = models.FloatField(default=0, help_text="Of GPUs that attempts held which had yet to start.")
    out_gpu_s = models.FloatField(default=0, help_text="Of free GPUs that were unhealthy or out of service.")
    read_energy_j = models.FloatField(default=0, help_text="Energy of GPUs that jobs held, as read.")
    read_gpu_s = models.FloatField(default=0, help_text="GPU-seconds of which it was read.")

    class Meta:
        indexes = [models.Index(fields=("minute",), name="type_usage_by_minute")]
        constraints = [models.UniqueConstraint(fields=("gpu_type", "minute"), name="type_usage_once_per_minute")]

    def __str__(self) -> str:
        return f"{self.gpu_type} at {self.minute:%F %H:%M}"
