"""Leases of the scheduler's two loops, with the fencing tokens of their writes."""

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
    watched_at = models.DateTimeField(null=True, help_text="When GPUs were last read.")
    pruned_at = models.DateTimeField(null=True, help_text="When retention last ran.")

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id__gte=1, id__lte=2), name="lease_of_a_known_loop")]

    def __str__(self) -> str:
        loop = self.Loop(self.pk).label
        return f"{loop}: {self.holder or 'no process'} until {self.expires_at:%H:%M:%S}, token {self.token}"
