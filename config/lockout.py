"""Response to a login that is locked out after too many failed passwords."""

from math import ceil
from typing import Any

from axes.models import AccessAttempt
from django.conf import settings
from django.db.models import Max
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


def _wait_s(request: HttpRequest, username: str | None) -> int:
    """Seconds until the last counted failure expires."""
    failures = AccessAttempt.objects.filter(username=username, ip_address=address_of(request))
    last = failures.aggregate(Max("attempt_time"))["attempt_time__max"] or timezone.now()
    return max(1, ceil((last + settings.AXES_COOLOFF_TIME - timezone.now()).total_seconds()))
