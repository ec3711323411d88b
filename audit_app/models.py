"""The audit list: one row for each thing that a person or a script did."""

from django.conf import settings
from django.db import models
from django.utils import timezone


class AuditEntry(models.Model):
    """Rows are written once and never changed; the actor's name stays when the account goes."""

    class Door(models.TextChoices):
        PAGE = "page", "page"
        REST = "rest", "REST"
        ADMIN = "admin", "admin"
        SERVICE = "service", "the service itself"

    at = models.DateTimeField(default=timezone.now, editable=False)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    actor_name = models.CharField(max_length=150, blank=True)
    door = models.CharField(max_length=10, choices=Door.choices, default=Door.SERVICE)
    action = models.CharField(max_length=40, help_text="Thing and verb, as job.cancel or node.drain.")
    target = models.CharField(max_length=200, blank=True, help_text="Its name.")
    target_id = models.CharField(max_length=64, blank=True)
    message = models.CharField(max_length=500, blank=True)
    request_id = models.CharField(max_length=64, blank=True)

    class Meta:
        verbose_name_plural = "audit entries"
        ordering = ("-id",)
        indexes = [
            models.Index(fields=("actor", "-id"), name="audit_by_actor"),
            models.Index(fields=("action", "-id"), name="audit_by_action"),
            models.Index(fields=("target_id", "-id"), name="audit_by_target"),
            models.Index(fields=("at",), name="audit_by_time"),
        ]

    def __str__(self) -> str:
        return f"{self.actor_name or 'the service'}: {self.action} {self.target}".rstrip()
