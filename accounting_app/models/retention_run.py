"""Runs of retention, with the rows that each removed or failed to remove."""

from django.db import models
from django.utils import timezone


class RetentionRun(models.Model):
    """One run of retention; the labels are those of its rules."""

    at = models.DateTimeField(default=timezone.now, db_index=True)
    took_s = models.FloatField()
    removed = models.JSONField(help_text="Label of a rule → rows that it removed.")
    faults = models.JSONField(help_text="Label of a rule → why it failed.")
    complete = models.BooleanField(help_text="Whether its time was enough for all rules.")

    class Meta:
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"{self.at:%F %T}: {sum(self.removed.values())} rows"
