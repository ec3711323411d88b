"""Fairness and utilization pages: charts over a time window."""

from collections.abc import Sequence
from datetime import datetime
from statistics import median
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from accounting_app.fairness.budgets import budgets_seen_by
from accounting_app.fairness.history import (
    WINDOWS,
    Point,
    Window,
    cluster_states,
    fairness,
    hours_of_days,
    type_uses,
    utilization,
)
from accounting_app.fairness.quota_ledger import quota_reports
from accounting_app.fairness.share_explanations import read_circumstances, sentences
from accounting_app.fairness.usage_ledger import jain_index_of_teams, team_shares
from scheduler_app.finish_time import rhos_since
from scheduler_app.models import PolicySetting
from web.pages.base import SignedInRequest, unknown_value
from web.pages.charts import (
    delivered_figure,
    fairness_figure,
    over,
    rho_bars,
    rho_figure,
    states_figure,
    utilization_figure,
)
from web.pages.job_rows import read_colour_numbers


@login_required
@require_safe
def fairness_page(request: SignedInRequest) -> HttpResponse:
    key, window = _window(request)
    now = timezone.now()
    points, shares = fairness(window, now), team_shares(now - window.length)
    policy = PolicySetting.objects.current().policy
    context = {
        "shares": shares,
        "jain": jain_index_of_teams(shares),
        "sentences": sentences(shares, window.words, read_circumstances(request.user, policy)),
        "delivered_figure": over(delivered_figure(_complete(points, window, now)), window.length, now),
        "rho": rho_context(rhos_since(now - window.length)),
        "points": points,
        "figure": over(fairness_figure(points), window.length, now),
        "quotas": quota_reports(request.user, now),
        "budgets": budgets_seen_by(request.user, now),
    }
    return render(request, "pages/fairness.html", context | _choice(key))


@login_required
@require_safe
def utilization_page(request: SignedInRequest) -> HttpResponse:
    key, window = _window(request)
    now = timezone.now()
    points, states = utilization(window, now), cluster_states(window, now)
    context = {
        "uses": type_uses(now - window.length),
        "points": points,
        "figure": over(utilization_figure(points, read_colour_numbers()), window.length, now),
        "states": states,
        "states_figure": over(states_figure(states), window.length, now),
        "days": hours_of_days(now, timezone.get_current_timezone()),
        "hours": range(24),
    }
    return render(request, "pages/utilization.html", context | _choice(key))


def rho_context(rhos: Sequence[float]) -> dict[str, Any] | None:
    """Distribution of finish-time fairness with its median and the part of jobs above 1; None without jobs."""
    if not rhos:
        return None
    bars = rho_bars(rhos)
    late = sum(value > 1 for value in rhos) / len(rhos)
    return {"bars": bars, "figure": rho_figure(bars), "jobs": len(rhos), "median": median(rhos), "late": late}


def _complete(points: Sequence[Point], window: Window, now: datetime) -> list[Point]:
    """Points of intervals that are over: work of the present one is still to come."""
    return [point for point in points if point.at + window.bucket <= now]


def _window(request: SignedInRequest) -> tuple[str, Window]:
    key = request.GET.get("window", "1h")
    if key not in WINDOWS:
        raise unknown_value("window", key, WINDOWS)
    return key, WINDOWS[key]


def _choice(key: str) -> dict[str, Any]:
    return {"window": key, "window_words": WINDOWS[key].words, "windows": list(WINDOWS)}
