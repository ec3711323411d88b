"""Lockout of logins after too many wrong passwords, and the response to one."""

from math import ceil
from typing import Any

from axes.handlers.database import AxesDatabaseHandler
from axes.helpers import get_client_username
from axes.models import AccessAttempt
from django.conf import settings
from django.db.models import Max, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from web.rest.throttling import address_of


def locked_out(request: HttpRequest, response: HttpResponse | None, credentials: dict[str, Any] | None) -> HttpResponse:
    """429, with the wait in minutes on the page and in seconds in `Retry-After`."""
    wait_s = _wait_s(request, (credentials or {}).get("username"))
    context = {"wait_minutes": ceil(wait_s / 60), "tries": settings.AXES_FAILURE_LIMIT}
    answer = render(request, "registration/locked.html", context, status=429)
    answer["Retry-After"] = str(wait_s)
    return answer


class Failures(AxesDatabaseHandler):  # type: ignore[misc]
    """Lockout by name and address after a few wrong passwords, and by name after many from all addresses together.

    An address that is locked out adds nothing, so that nobody locks others out from a few addresses.
    """

    def is_locked(self, request: HttpRequest, credentials: dict[str, Any] | None = None) -> bool:
        if super().is_locked(request, credentials):
            return True
        username = get_client_username(request, credentials)
        return bool(username) and _failures_of(username) >= settings.MOTLEY_LOGIN_FAILURES


def _failures_of(username: str) -> int:
    """Counted wrong passwords for the name, from all addresses."""
    recent = AccessAttempt.objects.filter(
        username=username, attempt_time__gt=timezone.now() - settings.AXES_COOLOFF_TIME
    )
    return recent.aggregate(Sum("failures_since_start"))["failures_since_start__sum"] or 0


def _wait_s(request: HttpRequest, username: str | None) -> int:
    """Seconds until the last counted failure expires."""
    failures = AccessAttempt.objects.filter(username=username)
    own = failures.filter(ip_address=address_of(request))
    last = (own if own.exists() else failures).aggregate(Max("attempt_time"))["attempt_time__max"] or timezone.now()
    return max(1, ceil((last + settings.AXES_COOLOFF_TIME - timezone.now()).total_seconds()))
