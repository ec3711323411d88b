"""Progress of a job over time: one row with a limited number of points, however many steps it makes."""

from django.db import models

from jobs_app.models.job import Job


class ProgressCurve(models.Model):
    """Points `[milliseconds since 1970, step, loss or null]`, the oldest first; thinned as they become too many.

    A point with named metrics has a fourth value, `{name: [step, value]}`.
    """

    job = models.OneToOneField(Job, primary_key=True, on_delete=models.CASCADE, related_name="curve")
    spacing_s = models.FloatField(help_text="Least time between two points: it doubles when they are thinned.")
    last_at = models.DateTimeField(help_text="Time of the last point.")
    points = models.JSONField(default=list)
    milestones = models.JSONField(
        default=dict, help_text="Step → value of the metric that a sweep compares; `last`: the last one."
    )

    def __str__(self) -> str:
        return f"progress of {self.job_id}"
