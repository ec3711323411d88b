"""Durations of jobs: forecasts with their outcome, and the fitted model of each night."""

from django.conf import settings
from django.db import models
from django.db.models import Q

from jobs_app.models import Team

MOST_OF_REQUEST = 200
"""Characters kept of requested GPU types: they say only whether two jobs request the same."""
WITH_ITS_END = Q(seconds=None, ended_at=None) | Q(seconds__gte=0, ended_at__isnull=False)

OBSERVATION = Q(ended_at__isnull=False) & (Q(array=None) | Q(array_mean_s__isnull=False))
"""What later jobs are estimated from: an array is one observation, however many tasks it has."""
OF_ENDED_TASK = Q(array__isnull=False, ended_at__isnull=False)


class DurationForecast(models.Model):
    """Two forecasts of one job's duration beside the true one, in seconds of its smallest gang on average GPUs.

    The row of a job that succeeded stays when the job is archived: later jobs are estimated from it. What a forecast is
    based on is a `Basis` of `estimation.durations`; empty: there was none.
    """

    job = models.UUIDField(primary_key=True, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, db_index=False)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, db_index=False)
    array = models.UUIDField(null=True, editable=False, help_text="That it is a task of; null: none.")
    name = models.CharField(max_length=100)
    gpus = models.PositiveIntegerField(help_text="Of its smallest gang.")

    gpu_types = models.CharField(
        max_length=MOST_OF_REQUEST, blank=True, default="", help_text="Requested, joined by commas; empty: any."
    )
    time_limit_s = models.PositiveIntegerField(null=True)

    submission_s = models.FloatField(null=True, help_text="Forecast in the first round after its submission.")
    submission_spread = models.FloatField(null=True, help_text="Standard deviation of the logarithm.")
    submission_basis = models.CharField(max_length=20, blank=True)
    submission_n = models.PositiveIntegerField(default=0, help_text="Jobs behind it.")
    start_s = models.FloatField(null=True, help_text="Forecast in the round that first gave it GPUs.")
    start_spread = models.FloatField(null=True, help_text="Standard deviation of the logarithm.")
    start_basis = models.CharField(max_length=20, blank=True)
    start_n = models.PositiveIntegerField(default=0, help_text="Jobs behind it.")

    seconds = models.FloatField(null=True, help_text="As it was; null: it has not ended.")
    ended_at = models.DateTimeField(null=True)
    array_mean_s = models.FloatField(
        null=True, help_text="Of the first task of an array that ended: mean of all that did; null for all others."
    )

    class Meta:
        ordering = ("-job",)
        indexes = [
            models.Index(fields=("ended_at",), condition=Q(ended_at__isnull=False), name="forecast_by_end"),
            models.Index(fields=("job",), condition=Q(ended_at=None), name="forecast_open"),
            models.Index(fields=("ended_at",), condition=OBSERVATION, name="forecast_observations"),
            models.Index(fields=("array",), condition=OF_ENDED_TASK, name="forecast_of_array"),
        ]
        constraints = [
            models.CheckConstraint(condition=WITH_ITS_END, name="forecast_with_its_end"),
            models.CheckConstraint(condition=Q(gpus__gt=0), name="forecast_has_gpus"),
        ]

    def __str__(self) -> str:
        return f"{self.name}: {self.submission_s} s forecast, {self.seconds} s"


class DurationModel(models.Model):
    """The model of one day, as arrays of numbers, and its card. Only the newest keeps its arrays.

    The row of a day is made before the fit, so that one process fits; a day whose fit failed has no model.
    """

    day = models.DateField(primary_key=True)
    fitted_at = models.DateTimeField(null=True, help_text="Null: the fit has not ended, or failed.")
    jobs = models.PositiveIntegerField(default=0, help_text="Ended jobs that it learned from.")
    comparisons = models.JSONField(
        default=list, help_text="Errors beside the rolling estimate's on the jobs held out: of all, then of each pool."
    )
    features_version = models.PositiveSmallIntegerField(
        default=0, help_text="Of the features that it was fitted to (estimation.duration_features)."
    )
    trees = models.BinaryField(null=True, help_text="NumPy arrays, without pickle.")
    message = models.CharField(max_length=500, blank=True, help_text="Why there is no model of this day.")

    class Meta:
        ordering = ("-day",)
        constraints = [
            models.CheckConstraint(
                condition=Q(trees=None) | Q(fitted_at__isnull=False), name="duration_model_fitted_with_trees"
            )
        ]

    def __str__(self) -> str:
        return f"{self.day}: {self.jobs} jobs"
