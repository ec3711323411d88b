"""Forecasts: their runs, the current one of each job, and those kept to be compared with what happened."""

from django.db import models
from django.db.models import Q

from jobs_app.models import Team


class ForecastRun(models.Model):
    """One run of forecasts, from what a committed round decided; its row is made before it begins, so that one runs."""

    round = models.PositiveBigIntegerField(unique=True, help_text="The newest committed round when it was claimed.")
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, help_text="Null: it is running, or its process was lost.")
    jobs = models.PositiveIntegerField(default=0, help_text="Jobs that have a forecast.")
    left_out = models.PositiveIntegerField(default=0, help_text="Jobs beyond those at the front that were played.")
    draws = models.PositiveIntegerField(default=0, help_text="Futures that were played.")
    message = models.CharField(max_length=500, blank=True, help_text="Why it failed; empty: it did not.")
    planned = models.JSONField(
        null=True,
        help_text="Of the hours from its beginning on, by the plan over time: `ends_s` of intervals, and by GPU type "
        "`prices` in hours that others wait per GPU-hour and `load` in GPUs. Null: the policy has no such plan.",
    )

    class Meta:
        ordering = ("-started_at", "-pk")

    def __str__(self) -> str:
        return f"forecasts after round {self.round}"


class JobForecast(models.Model):
    """When one job starts and ends: 10, 50 and 90 % of the futures that were played; null: beyond three days.

    All rows are written anew by each run of forecasts. A job that holds GPUs has place 0 and no forecast of its start.
    """

    job = models.UUIDField(primary_key=True, editable=False)
    made_at = models.DateTimeField(help_text="When the queue was read.")
    start_low = models.DateTimeField(null=True)
    start_median = models.DateTimeField(null=True)
    start_high = models.DateTimeField(null=True)
    start_by = models.DateTimeField(null=True, help_text="Earliest end of the intervals of its start that were shown.")
    late_since = models.DateTimeField(null=True, help_text="When the first of these passed; null: none has.")
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
