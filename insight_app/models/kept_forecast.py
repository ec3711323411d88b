"""Forecasts of starts and ends, kept and compared with the outcome."""

from django.db import models
from django.db.models import Q

from jobs_app.models import Team


class KeptForecast(models.Model):
    """One forecast of one event of a job: quantiles in seconds from `made_at`; null: beyond three days.

    Played are those of the futures, shown are those that the correction made of them. The row of a job that ended
    otherwise than the forecast counts with is deleted.
    """

    class Event(models.TextChoices):
        START = "start", "start"
        FINISH = "finish", "end"

    class Occasion(models.TextChoices):
        SUBMISSION = "submission", "submission"
        START = "start", "start"
        HOURLY = "hourly", "hourly"

    job = models.UUIDField(editable=False)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, db_index=False)
    event = models.CharField(max_length=6, choices=Event)
    occasion = models.CharField(max_length=10, choices=Occasion)
    made_at = models.DateTimeField()
    known_length = models.BooleanField(help_text="Whether the job declares or reports its steps.")
    played_low_s = models.FloatField(null=True)
    played_median_s = models.FloatField(null=True)
    played_high_s = models.FloatField(null=True)
    shown_low_s = models.FloatField(null=True)
    shown_median_s = models.FloatField(null=True)
    shown_high_s = models.FloatField(null=True)
    happened_at = models.DateTimeField(null=True, help_text="The truth; null: it is not known yet.")

    class Meta:
        ordering = ("-made_at", "-pk")
        indexes = [
            models.Index(
                fields=("happened_at",), condition=Q(happened_at__isnull=False), name="kept_forecast_by_event"
            ),
            models.Index(fields=("job",), condition=Q(happened_at=None), name="kept_forecast_open"),
        ]
        constraints = [
            models.UniqueConstraint(fields=("job", "event", "made_at"), name="kept_forecast_once"),
            models.CheckConstraint(condition=Q(event__in=("start", "finish")), name="kept_forecast_event"),
            models.CheckConstraint(
                condition=Q(occasion__in=("submission", "start", "hourly")), name="kept_forecast_occasion"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.event} of {self.job}, forecast at {self.made_at}"
