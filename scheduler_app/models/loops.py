"""The two loops of the scheduler: their leases, and the items that they leave alone for a while."""

from django.db import models
from django.utils import timezone


class SchedulerLease(models.Model):
    """Lease of one loop: at most one process runs it at a time, and `token` fences the writes of those before it."""

    class Loop(models.IntegerChoices):
        ROUNDS = 1, "rounds"
        """Its token is the number of the newest round."""
        ENGINES = 2, "engines"
        """Its token counts the processes that took the lease."""

    holder = models.CharField(max_length=80, blank=True)
    expires_at = models.DateTimeField(default=timezone.now)
    listening_since = models.DateTimeField(default=timezone.now, help_text="Missing heartbeats count from here.")
    token = models.PositiveBigIntegerField(default=0)
    heard_at = models.DateTimeField(null=True, help_text="Of the engines: what happened until then has been stored.")
    watched_at = models.DateTimeField(null=True, help_text="When GPUs were last read.")
    pruned_at = models.DateTimeField(null=True, help_text="When retention last ran.")

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id__gte=1, id__lte=2), name="lease_of_a_known_loop")]

    def __str__(self) -> str:
        loop = self.Loop(self.pk).label
        return f"{loop}: {self.holder or 'no process'} until {self.expires_at:%H:%M:%S}, token {self.token}"


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
