"""For machines that look after the service: metrics, and whether it lives, is ready, and schedules."""

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST

from scheduler_app.heartbeat import heartbeat
from scheduler_app.metrics import exposition
from scheduler_app.readiness import what_is_missing

RETRY_AFTER_S = "5"


@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """For Prometheus, which must know the token if there is one."""
    token = settings.MOTLEY_METRICS_TOKEN
    if token and not constant_time_compare(request.headers.get("Authorization", ""), f"Bearer {token}"):
        return HttpResponse("The token for metrics is missing.\n", "text/plain", 401, headers=CHALLENGE)
    return HttpResponse(exposition(), content_type=CONTENT_TYPE_LATEST)


CHALLENGE = {"WWW-Authenticate": 'Bearer realm="motley metrics"'}


@never_cache
@require_safe
def livez(request: HttpRequest) -> HttpResponse:
    """This process alone: who restarts it because the database is away makes nothing better."""
    return JsonResponse({"alive": True})


@never_cache
@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Whether requests can be answered here, and what is missing."""
    missing = what_is_missing()
    return _verdict({"ready": not missing, "missing": missing}, good=not missing)


@never_cache
@require_safe
def scheduler(request: HttpRequest) -> HttpResponse:
    """How old the last good round is, and whether that is too old."""
    beat = heartbeat(timezone.now())
    answer = {
        "healthy": beat.healthy,
        "last_good_round": beat.good.number if beat.good else None,
        "last_good_at": beat.good.started_at if beat.good else None,
        "age_seconds": beat.age.total_seconds() if beat.age is not None else None,
        "limit_seconds": beat.patience.total_seconds(),
        "last_round_failed": beat.failing,
        "last_round_fell_back": beat.fell_back,
        "solver_said": beat.last.message if beat.last and beat.fell_back else "",
    }
    return _verdict(answer, good=beat.healthy)


def _verdict(answer: dict[str, Any], *, good: bool) -> HttpResponse:
    if good:
        return JsonResponse(answer)
    return JsonResponse(answer, status=503, headers={"Retry-After": RETRY_AFTER_S})
