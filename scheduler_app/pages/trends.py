"""Fairness and utilization pages: charts over a time window."""

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from scheduler_app.fairness.budgets import budgets_seen_by
from scheduler_app.fairness.history import WINDOWS, Window, fairness, type_uses, utilization
from scheduler_app.fairness.quota_ledger import quota_reports
from scheduler_app.fairness.usage_ledger import TeamShare, jain_index_of_teams, team_shares
from scheduler_app.pages.base import SignedInRequest
from scheduler_app.pages.charts import fairness_figure, utilization_figure
from scheduler_app.templatetags.words import percent

NEARLY = 0.02


@login_required
@require_safe
def fairness_page(request: SignedInRequest) -> HttpResponse:
    key, window = _window(request)
    now = timezone.now()
    points, shares = fairness(window, now), team_shares(now - window.length)
    context = {
        "shares": shares,
        "jain": jain_index_of_teams(shares),
        "sentence": sentence(shares, window),
        "points": points,
        "figure": fairness_figure(points),
        "quotas": quota_reports(request.user, now),
        "budgets": budgets_seen_by(request.user, now),
    }
    return render(request, "scheduler_app/fairness.html", context | _choice(key))


@login_required
@require_safe
def utilization_page(request: SignedInRequest) -> HttpResponse:
    key, window = _window(request)
    now = timezone.now()
    points = utilization(window, now)
    context = {
        "uses": type_uses(now - window.length),
        "points": points,
        "figure": utilization_figure(points),
    }
    return render(request, "scheduler_app/utilization.html", context | _choice(key))


def sentence(shares: list[TeamShare], window: Window) -> str:
    """One sentence on the team that is furthest from its entitlement."""
    if not shares:
        return "No team had jobs in this time window."
    furthest = max(shares, key=lambda share: abs(share.delivered - share.entitled))
    if abs(furthest.delivered - furthest.entitled) < NEARLY:
        return f"In {window.words} every team got its entitlement, within {percent(NEARLY)} of the cluster's work."
    return (
        f"In {window.words} {furthest.team} got {percent(furthest.delivered)} of the cluster's work "
        f"against an entitlement of {percent(furthest.entitled)}."
    )


def _window(request: SignedInRequest) -> tuple[str, Window]:
    key = request.GET.get("window", "1h")
    if key not in WINDOWS:
        raise Http404
    return key, WINDOWS[key]


def _choice(key: str) -> dict[str, Any]:
    return {"window": key, "window_words": WINDOWS[key].words, "windows": list(WINDOWS)}
