"""Targets of notifications, and the outbox: one row for each message to each target."""

from datetime import datetime

from django.conf import settings
from django.contrib.auth.models import User
from django.db import models
from django.db.models import Q
from django.utils import timezone
from uuid_utils.compat import uuid7

from jobs_app.models.team import Team


class NotificationTargetQuerySet(models.QuerySet["NotificationTarget"]):
    def visible_to(self, user: User) -> "NotificationTargetQuerySet":
        """The user's own, and those of the user's teams; those of all teams for staff."""
        if user.is_staff:
            return self.filter(Q(user=user) | Q(team__isnull=False))
        return self.filter(Q(user=user) | Q(team__in=user.teams.all()))


class NotificationTarget(models.Model):
    """Address to which Motley sends notifications of a person's or a team's jobs. The address is encrypted."""

    class Kind(models.TextChoices):
        MAIL = "mail", "mail"
        SLACK = "slack", "Slack"
        WEBHOOK = "webhook", "webhook"

    class Event(models.TextChoices):
        JOB_ENDED = "job_ended", "a job has ended"
        JOB_FAILED = "job_failed", "a job has failed or reached its time limit"
        RETRIES_USED = "retries_used", "a job has used all its retries"
        FAILED_SHARE = "failed_share", "many of the team's jobs fail"
        JOB_WAITS = "job_waits", "a job waits longer than forecast"
        NODE_LOST = "node_lost", "a node with jobs is lost"
        RUN_REFUSED = "run_refused", "a recurring job was refused or paused"
        TEST = "test", "test"

    CHOSEN = (
        *(Event.JOB_ENDED, Event.JOB_FAILED, Event.RETRIES_USED),
        *(Event.FAILED_SHARE, Event.JOB_WAITS, Event.NODE_LOST, Event.RUN_REFUSED),
    )

    team = models.ForeignKey(Team, null=True, blank=True, on_delete=models.CASCADE, related_name="notification_targets")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="notification_targets",
    )
    kind = models.CharField(max_length=10, choices=Kind.choices)
    shown = models.CharField(max_length=300, help_text="The address without what is secret in it.")
    encrypted = models.TextField(editable=False)
    encrypted_key = models.TextField(editable=False, blank=True, help_text="Key that signs webhooks.")
    events = models.JSONField(default=list)
    created_at = models.DateTimeField(default=timezone.now)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    sent_at = models.DateTimeField(null=True, blank=True, help_text="Of the last message.")
    failures = models.PositiveIntegerField(default=0, help_text="Messages that failed since the last that was sent.")
    retry_at = models.DateTimeField(null=True, blank=True, help_text="No message is sent before.")

    objects = NotificationTargetQuerySet.as_manager()

    class Meta:
        ordering = ("id",)
        constraints = [
            models.CheckConstraint(
                condition=Q(team=None, user__isnull=False) | Q(team__isnull=False, user=None),
                name="notification_target_of_one",
            ),
            models.CheckConstraint(
                condition=Q(kind__in=("mail", "slack", "webhook")), name="notification_target_kind_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.shown} of {self.team or self.user}"

    @property
    def is_gathered(self) -> bool:
        """Whether several notifications are combined into one message, because people read it."""
        return self.kind != self.Kind.WEBHOOK

    @property
    def events_in_words(self) -> list[str]:
        return [self.Event(event).label for event in self.events]


class NotificationQuerySet(models.QuerySet["Notification"]):
    def due(self, now: datetime) -> "NotificationQuerySet":
        """Notifications to be sent now, longest due first."""
        ready = Q(target__retry_at=None) | Q(target__retry_at__lte=now)
        return self.filter(ready, state=Notification.State.PENDING, due_at__lte=now).order_by("due_at", "pk")

    def visible_to(self, user: User) -> "NotificationQuerySet":
        return self.filter(target__in=NotificationTarget.objects.visible_to(user))


class Notification(models.Model):
    """One notification to one target, written in the transaction of its event; a sender delivers it later."""

    class State(models.TextChoices):
        PENDING = "pending", "pending"
        SENT = "sent", "sent"
        DEAD = "dead", "given up"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    target = models.ForeignKey(
        NotificationTarget, on_delete=models.CASCADE, related_name="notifications", db_index=False
    )
    event = models.CharField(max_length=20, choices=NotificationTarget.Event.choices)
    key = models.CharField(max_length=200, help_text="What it is about: a target is told of it once.")
    facts = models.JSONField(default=dict)
    state = models.CharField(max_length=10, choices=State.choices, default=State.PENDING)
    created_at = models.DateTimeField(default=timezone.now)
    due_at = models.DateTimeField(default=timezone.now, help_text="When a sender may take it.")
    lease = models.UUIDField(null=True, help_text="Of the sender that has taken it.")
    tries = models.PositiveIntegerField(default=0)
    sent_at = models.DateTimeField(null=True)
    error = models.CharField(max_length=300, blank=True)

    objects = NotificationQuerySet.as_manager()

    class Meta:
        ordering = ("-id",)
        indexes = [
            models.Index(fields=("due_at",), condition=Q(state="pending"), name="notification_due"),
            models.Index(fields=("id",), condition=Q(state="dead"), name="notification_given_up"),
            models.Index(fields=("created_at",), name="notification_by_creation"),
            models.Index(fields=("target", "-id"), name="notification_by_target"),
            models.Index(fields=("key",), condition=Q(event="job_waits"), name="notification_of_late_start"),
        ]
        constraints = [
            models.UniqueConstraint(fields=("target", "key"), name="notification_once"),
            models.CheckConstraint(condition=Q(state__in=("pending", "sent", "dead")), name="notification_state_known"),
        ]

    def __str__(self) -> str:
        return f"{self.event} to {self.target_id}"
