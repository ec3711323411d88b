"""Power commands of nodes that sleep or wake."""

from datetime import datetime, timedelta

from django.conf import settings
from django.db import models

from cluster_app.models.node import Node

FIRST_PAUSE = timedelta(seconds=10)
"""After a power command that failed, or of whose end nobody heard, before the next for that node."""


class NodePower(models.Model):
    """Power command of a node that was put to sleep, or is being woken; the row goes when it is awake."""

    node = models.OneToOneField(Node, on_delete=models.CASCADE, primary_key=True, related_name="power")
    since = models.DateTimeField(help_text="When it was put to sleep, or began to be woken.")
    sent_at = models.DateTimeField(null=True, help_text="When the command was last started.")
    done_at = models.DateTimeField(null=True, help_text="When the command ended well.")
    fault = models.CharField(max_length=500, blank=True, help_text="Why the command failed the last time.")
    times = models.PositiveIntegerField(default=0, help_text="How often the command has failed.")
    failed_at = models.DateTimeField(null=True, help_text="When the command failed for the first time.")
    retry_at = models.DateTimeField(null=True, help_text="It is not started, or started again, before.")
    silent_at = models.DateTimeField(null=True, help_text="When the silence of the node was noticed: it is off.")

    def __str__(self) -> str:
        return f"{self.node} since {self.since:%F %T}"

    @property
    def over_at(self) -> datetime | None:
        """Time at which a command whose end is not known counts as over; None if there is no such command."""
        if self.sent_at is None or self.done_at is not None:
            return None
        timeout: timedelta = settings.MOTLEY_NODE_POWER_TIMEOUT
        return self.sent_at + timeout + FIRST_PAUSE
