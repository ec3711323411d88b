"""Models of durations, one a day, with the errors that they had on jobs held out."""

from django.db import models
from django.db.models import Q


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
