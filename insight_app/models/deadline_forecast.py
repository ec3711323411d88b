"""Forecasts of whether jobs meet their deadlines, kept and compared with the outcome."""

from django.db import models
from django.db.models import Q

from jobs_app.models import Team


class DeadlineForecast(models.Model):
    """Probability that one job is done by a deadline, as it was shown; `met` and `known_at` once the outcome is known.

    The deadline is that of the job when the forecast was made. The row of a job that failed or was cancelled before it
    is deleted: whether it would have met it is not known.
    """

    job = models.UUIDField(editable=False)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, db_index=False)
    deadline = models.DateTimeField()
    made_at = models.DateTimeField()
    in_time = models.FloatField(help_text="Probability of being done by the deadline, 0 to 1.")
    met = models.BooleanField(null=True, help_text="Whether it was; null: that is not known yet.")
    known_at = models.DateTimeField(null=True, help_text="When the job was done, or the deadline passed.")

    class Meta:
        ordering = ("-made_at", "-pk")
        indexes = [
            models.Index(fields=("known_at",), condition=Q(known_at__isnull=False), name="deadline_forecast_known"),
            models.Index(fields=("job",), condition=Q(known_at=None), name="deadline_forecast_open"),
        ]
        constraints = [
            models.UniqueConstraint(fields=("job", "made_at"), name="deadline_forecast_once"),
            models.CheckConstraint(condition=Q(in_time__gte=0) & Q(in_time__lte=1), name="deadline_forecast_in_time"),
            models.CheckConstraint(
                condition=Q(met=None, known_at=None) | Q(met__isnull=False, known_at__isnull=False),
                name="deadline_forecast_known_or_open",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.job} by {self.deadline:%F %T}: {self.in_time:.2f}"
