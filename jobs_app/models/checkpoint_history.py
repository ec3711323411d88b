"""Checkpoints that a job reported, also those that later ones have replaced."""

from django.db import models

from jobs_app.models.job import Job


class CheckpointHistory(models.Model):
    """The newest checkpoints of a job: `[ms since 1970, step, seconds, attempt, loss or null, worth]`.

    The oldest first. The worth, in steps of the initial batch (`Job.worth_done`), is that of a tuned batch alone.
    """

    job = models.OneToOneField(Job, primary_key=True, on_delete=models.CASCADE, related_name="checkpoint_history")
    made = models.JSONField(default=list)

    class Meta:
        verbose_name_plural = "checkpoint histories"

    def __str__(self) -> str:
        return f"checkpoints of {self.job_id}"
