"""Invitation of a person: a link with which the new account gets its first password, once."""

import secrets
from datetime import datetime, timedelta
from enum import StrEnum

from django.conf import settings
from django.db import models
from django.utils import timezone

from jobs_app.models.team import digest_of

LIFETIME = timedelta(days=7)


class Invitation(models.Model):
    """Invitation. Only the hash of its text is stored; a new one of the same person replaces it."""

    class State(StrEnum):
        OPEN = "open"
        USED = "used"
        EXPIRED = "expired"

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="invitation")
    digest = models.CharField(max_length=64, unique=True, editable=False)
    invited_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, editable=False, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(editable=False)
    used_at = models.DateTimeField(null=True, editable=False)

    def __str__(self) -> str:
        return f"invitation of {self.user}"

    def set_text(self, now: datetime) -> str:
        """Generate the secret of the link and return it; only its hash is stored."""
        text = secrets.token_urlsafe(32)
        self.digest, self.created_at, self.expires_at, self.used_at = digest_of(text), now, now + LIFETIME, None
        return text

    def state_at(self, now: datetime) -> State:
        if self.used_at is not None:
            return self.State.USED
        return self.State.EXPIRED if now >= self.expires_at else self.State.OPEN
