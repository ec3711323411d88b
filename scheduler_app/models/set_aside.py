"""Quarantined items: jobs, attempts and nodes that raised an unexpected error and are skipped for a while."""

from django.db import models


class SetAside(models.Model):
    """A job, attempt or node that made the scheduler raise: it is skipped until `retry_at`."""

    class Kind(models.TextChoices):
        ATTEMPT = "attempt", "attempt"
        JOB = "job", "job"
        NODE = "node", "node"

    kind = models.CharField(max_length=10, choices=Kind.choices)
    key = models.CharField(max_length=100, help_text="Id of the job or attempt, name of the node.")
    error = models.CharField(max_length=500)
    times = models.PositiveIntegerField(default=1, help_text="How often it has raised since then.")
    since = models.DateTimeField()
    retry_at = models.DateTimeField(help_text="Delete the row to have it tried at once.")

    class Meta:
        verbose_name = verbose_name_plural = "set aside"
        ordering = ("-since",)
        constraints = [models.UniqueConstraint(fields=("kind", "key"), name="set_aside_once")]

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"
