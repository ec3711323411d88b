"""The scheduler's lease: one row, whose round number is the fencing token of every write."""

from django.db import models
from django.db.models import Q
from django.utils import timezone


class SchedulerLease(models.Model):
    """The single row by which at most one scheduler is active; `round_number` is the fencing token."""

    THE_ONE = 1

    holder = models.CharField(max_length=80, blank=True)
    expires_at = models.DateTimeField(default=timezone.now)
    listening_since = models.DateTimeField(default=timezone.now, help_text="Missing heartbeats count from here.")
    round_number = models.PositiveBigIntegerField(default=0)
    accrued_until = models.DateTimeField(null=True, help_text="End of the time that the usage ledger covers.")
    pruned_at = models.DateTimeField(null=True, help_text="When retention last ran.")

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="lease_is_one_row")]

    def __str__(self) -> str:
        return f"{self.holder or 'no process'} until {self.expires_at:%H:%M:%S}, round {self.round_number}"
