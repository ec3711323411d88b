"""Months of teams: figures of their jobs, stored when a month is over, because jobs are archived later."""

from django.db import models

from jobs_app.models import Team


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
