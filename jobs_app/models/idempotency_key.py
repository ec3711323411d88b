"""Stored answers of requests with an idempotency key."""

from django.conf import settings
from django.db import models
from django.utils import timezone


class IdempotencyKey(models.Model):
    """The first answer to a request with this key, stored in the transaction that carried it out."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    route = models.CharField(max_length=100)
    key = models.CharField(max_length=200)
    digest = models.CharField(max_length=64, help_text="SHA-256 of the request's body.")
    status = models.PositiveSmallIntegerField()
    answer = models.JSONField()
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        indexes = [models.Index(fields=("created_at",), name="idempotency_by_time")]
        constraints = [models.UniqueConstraint(fields=("user", "route", "key"), name="idempotency_key_once")]

    def __str__(self) -> str:
        return f"{self.route} {self.key}"
