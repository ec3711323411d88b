"""Ledgers: GPU time and work of teams and GPU types, quotas, months of teams, and how far the ledgers reach."""

from datetime import datetime

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


class LedgerCoverage(models.Model):
    """End of the time that the ledgers cover: one row, written in the transaction of a round."""

    until = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="ledger_coverage_one_row")]

    def __str__(self) -> str:
        return f"ledgers until {self.until:%F %T}"

    @classmethod
    def covered_until(cls) -> datetime | None:
        """End of the covered time; None before the first round."""
        return cls.objects.filter(pk=1).values_list("until", flat=True).first()

    @classmethod
    def extend(cls, now: datetime) -> None:
        """Record that the ledgers reach to now."""
        cls.objects.update_or_create(pk=1, defaults={"until": now})


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


class TeamMonth(models.Model):
    """Figures of a team's jobs and attempts in one month (UTC), by when they ended."""

    team = models.ForeignKey(Team, on_delete=models.PROTECT)
    month = models.DateField(help_text="Its first day.")
    succeeded = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    cancelled = models.PositiveIntegerField(default=0)
    timed_out = models.PositiveIntegerField(default=0)
    started = models.PositiveIntegerField(default=0, help_text="Jobs among these that had started.")
    wait_s = models.FloatField(null=True, help_text="Mean time from submission to the first start; null: none started.")
    wait_p95_s = models.FloatField(null=True, help_text="Time within which 95 of 100 of them started.")
    restarts = models.PositiveIntegerField(default=0, help_text="Attempts after the first of their job.")
    lost_gpu_s = models.FloatField(default=0, help_text="GPU-seconds of work that was lost by stops and lost nodes.")
    failed_gpu_s = models.FloatField(default=0, help_text="GPU-seconds of attempts that failed.")
    members = models.JSONField(
        default=dict, help_text="Key of a member → GPU-seconds, and the same weighted by speed; as its jobs ran."
    )

    class Meta:
        indexes = [models.Index(fields=("month",), name="team_month_by_month")]
        constraints = [models.UniqueConstraint(fields=("team", "month"), name="team_month_once")]

    def __str__(self) -> str:
        return f"{self.team} in {self.month:%Y-%m}"
