"""Monitoring endpoints: Prometheus metrics, liveness, readiness and the scheduler's health."""

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST

from operations.health import scheduler_health
from operations.metrics import exposition
from operations.readiness import what_is_missing

RETRY_AFTER_S = "5"


@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Metrics for Prometheus, protected by a token if one is configured."""
    token = settings.MOTLEY_METRICS_TOKEN
    if token and not constant_time_compare(request.headers.get("Authorization", ""), f"Bearer {token}"):
        return HttpResponse("The metrics token is missing or wrong.\n", "text/plain", 401, headers=CHALLENGE)
    return HttpResponse(exposition(), content_type=CONTENT_TYPE_LATEST)


CHALLENGE = {"WWW-Authenticate": 'Bearer realm="motley metrics"'}


@never_cache
@require_safe
def livez(request: HttpRequest) -> HttpResponse:
    """Liveness of this process alone: a restart does not help if the database is down."""
    return JsonResponse({"alive": True})


@never_cache
@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Readiness, with the names of what is missing."""
    missing = what_is_missing()
    return _verdict({"ready": not missing, "missing": missing}, good=not missing)


@never_cache
@require_safe
def scheduler(request: HttpRequest) -> HttpResponse:
    """Scheduler health: the age of the last successful round and its limit."""
    beat = scheduler_health(timezone.now())
    answer = {
        "healthy": beat.healthy,
        "last_good_round": beat.good.number if beat.good else None,
        "last_good_at": beat.good.started_at if beat.good else None,
        "age_seconds": beat.age.total_seconds() if beat.age is not None else None,
        "limit_seconds": beat.patience.total_seconds(),
        "engines_heard": beat.engines_silent_for is None,
        "last_round_failed": beat.failing,
        "last_round_fell_back": beat.fell_back,
        "solver_said": beat.last.message if beat.last and beat.fell_back else "",
    }
    return _verdict(answer, good=beat.healthy)


def _verdict(answer: dict[str, Any], *, good: bool) -> HttpResponse:
    if good:
        return JsonResponse(answer)
    return JsonResponse(answer, status=503, headers={"Retry-After": RETRY_AFTER_S})
