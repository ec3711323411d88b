"""Runs of forecasts: when each began and ended, and how many futures it played."""

from django.db import models


class ForecastRun(models.Model):
    """One run of forecasts, from what a committed round decided; its row is made before it begins, so that one runs."""

    round = models.PositiveBigIntegerField(unique=True, help_text="The newest committed round when it was claimed.")
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, help_text="Null: it is running, or its process was lost.")
    jobs = models.PositiveIntegerField(default=0, help_text="Jobs that have a forecast.")
    left_out = models.PositiveIntegerField(default=0, help_text="Jobs beyond those at the front that were played.")
    draws = models.PositiveIntegerField(default=0, help_text="Futures that were played.")
    message = models.CharField(max_length=500, blank=True, help_text="Why it failed; empty: it did not.")

    class Meta:
        ordering = ("-started_at", "-pk")

    def __str__(self) -> str:
        return f"forecasts after round {self.round}"
