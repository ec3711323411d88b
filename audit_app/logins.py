"""Audit entries for login, logout, failed login and lockout, by signals."""

from typing import Any

from axes.signals import user_locked_out
from django.contrib.auth import get_user_model
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.dispatch import receiver
from django.http import HttpRequest

from audit_app.models import Action
from audit_app.services import note
from web.rest.throttling import address_of

NOBODY = "an unknown name"
"""An unknown name is not stored: people type their password into the wrong field."""


@receiver(user_logged_in)
def note_login(user: AbstractBaseUser, **_: Any) -> None:
    note(Action.LOGIN, actor=user, target=user.get_username(), target_id=user.pk)


@receiver(user_logged_out)
def note_logout(user: AbstractBaseUser | None, **_: Any) -> None:
    if user is not None:
        note(Action.LOGOUT, actor=user, target=user.get_username(), target_id=user.pk)


@receiver(user_login_failed)
def note_failure(credentials: dict[str, Any], request: HttpRequest | None = None, **_: Any) -> None:
    """Attempts during a lockout are not listed; the failure that caused it is listed as a lockout."""
    if not getattr(request, "axes_locked_out", False):
        note(Action.LOGIN_FAILED, actor=None, target=_known(credentials.get("username")), message=_from(request))


@receiver(user_locked_out)
def note_lockout(request: HttpRequest, username: str | None, **_: Any) -> None:
    """Once per lockout: only the failure that caused it was counted."""
    if getattr(request, "axes_failures_since_start", None) is not None:
        note(Action.LOGIN_LOCKED, actor=None, target=_known(username), message=_from(request))


def _known(username: str | None) -> str:
    users = get_user_model()._default_manager
    return str(username) if username and users.filter(username=username).exists() else NOBODY


def _from(request: HttpRequest | None) -> str:
    address = getattr(request, "axes_ip_address", None) or (address_of(request) if request else None)
    return f"from {address}" if address else ""
