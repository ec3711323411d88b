"""The present forecast of each unfinished job."""

from django.db import models
from django.db.models import Q


class JobForecast(models.Model):
    """When one job starts and ends: 10, 50 and 90 % of the futures that were played; null: beyond three days.

    All rows are written anew by each run of forecasts. A job that holds GPUs has place 0 and no forecast of its start.
    """

    job = models.UUIDField(primary_key=True, editable=False)
    made_at = models.DateTimeField(help_text="When the queue was read.")
    start_low = models.DateTimeField(null=True)
    start_median = models.DateTimeField(null=True)
    start_high = models.DateTimeField(null=True)
    finish_low = models.DateTimeField(null=True)
    finish_median = models.DateTimeField(null=True)
    finish_high = models.DateTimeField(null=True)
    gpu_type = models.CharField(max_length=100, blank=True, help_text="On which most futures start it; empty: none.")
    type_part = models.FloatField(default=0.0, help_text="Part of the futures that start it there, 0 to 1.")
    place = models.PositiveIntegerField(help_text="Among the jobs that wait, by median start; 0: it holds GPUs.")
    queue = models.PositiveIntegerField(help_text="Jobs that wait.")
    deadline = models.DateTimeField(null=True, help_text="Of the job, when the queue was read.")
    in_time = models.FloatField(null=True, help_text="Probability of being done by the deadline; null: not known.")

    class Meta:
        ordering = ("-job",)
        constraints = [
            models.CheckConstraint(
                condition=Q(type_part__gte=0) & Q(type_part__lte=1), name="job_forecast_part_of_the_futures"
            ),
            models.CheckConstraint(condition=Q(in_time__gte=0) & Q(in_time__lte=1), name="job_forecast_in_time"),
        ]

    def __str__(self) -> str:
        return f"{self.job}: ends {self.finish_median}"

    @property
    def runs(self) -> bool:
        """Whether it held GPUs when the forecast was made."""
        return self.place == 0
