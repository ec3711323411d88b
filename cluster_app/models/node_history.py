"""History of nodes: events, and the times in which a node was up or down."""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from cluster_app.models.node import Node


class NodeEvent(models.Model):
    """Event in the history of a node; it also wakes the scheduler."""

    class Kind(models.TextChoices):
        ADDED = "added", "added"
        CHANGED = "changed", "changed"
        CORDONED = "cordoned", "cordoned"
        DRAINED = "drained", "drain began"
        EMPTIED = "emptied", "drained: no jobs are left"
        RESUMED = "resumed", "resumed"
        RETIRED = "retired", "retired"
        RESTORED = "restored", "restored"
        STORAGE = "storage", "storage missing"
        SLEPT = "slept", "put to sleep"
        WOKEN = "woken", "being woken"
        AWAKE = "awake", "awake again"
        HEALTH = "health", "health changed"
        GPU = "gpu", "a GPU out of service or back"
        SPEED = "speed", "a GPU slow or no longer"

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField(default=timezone.now)
    kind = models.CharField(max_length=20, choices=Kind.choices)
    message = models.CharField(max_length=300, blank=True)
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL)

    class Meta:
        ordering = ("-id",)
        indexes = [models.Index(fields=("at",), name="node_event_by_time")]

    def __str__(self) -> str:
        return f"{self.node} {self.kind}"


class NodeInterval(models.Model):
    """Time in which a node was up, or down, without a break: observations of how long nodes stay."""

    class End(models.TextChoices):
        CHANGED = "changed", "it went, or came back"
        ANNOUNCED = "announced", "it went after it had been drained"
        RETIRED = "retired", "it was retired"
        SLEPT = "slept", "it was put to sleep"
        CENSORED = "censored", "not known: it was observed no longer, or another machine followed"

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="intervals", db_index=False)
    up = models.BooleanField()
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    end = models.CharField(max_length=20, choices=End.choices, blank=True, help_text="Empty: it goes on.")

    class Meta:
        ordering = ("-id",)
        indexes = [
            models.Index(fields=("node", "-id"), name="interval_of_node"),
            models.Index(fields=("ended_at",), name="interval_by_end"),
        ]
        constraints = [
            models.UniqueConstraint(fields=("node",), condition=Q(ended_at=None), name="interval_one_open_per_node"),
            models.CheckConstraint(condition=Q(ended_at=None) ^ ~Q(end=""), name="interval_ended_at_with_its_end"),
            models.CheckConstraint(
                condition=Q(end__in=("", "announced", "censored", "changed", "retired", "slept")),
                name="interval_end_known",
            ),
            models.CheckConstraint(
                condition=Q(ended_at=None) | Q(ended_at__gte=models.F("started_at")), name="interval_ends_after_start"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.node} {'up' if self.up else 'down'} from {self.started_at}"
