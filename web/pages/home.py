"""Home page: the user's jobs and GPUs, the cluster and shares of teams; for staff also what needs attention."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from accounting_app.fairness.history import WINDOWS, utilization
from accounting_app.fairness.usage_ledger import TeamShare, team_shares
from insight_app.attention import last_failures, pending_gpus, round_times_ms, starved_teams
from insight_app.explain.own_jobs import own_jobs
from insight_app.gpu_occupancy import GpuCounts, gpu_counts
from jobs_app.models import Job, ProgressCurve
from operations.demo import submit_another
from operations.health import scheduler_health
from web.pages.base import DOMAIN_ERRORS, SignedInRequest, job_rows, show_error
from web.pages.charts import area, sparkline
from web.pages.job_rows import JobRow, dots_of, forecast_time, read_gpu_styles, read_rows

WINDOW = timedelta(days=7)
MOST_CARDS, MOST_QUEUED = 9, 12
BURST = 8
"""Sample jobs of one press of the button."""


@dataclass(frozen=True)
class RunningCard:
    """A job or array that runs, with the line of its losses and the last of them."""

    row: JobRow
    line: str
    loss: float | None


@login_required
@require_safe
def home(request: SignedInRequest) -> HttpResponse:
    now = timezone.now()
    teams = list(request.user.teams.values_list("name", flat=True))
    shares = [share for share in team_shares(now - WINDOW) if request.user.is_staff or share.team in teams]
    counts, mine = gpu_counts(), own_jobs(request.user, now)
    context = {
        "mine": mine,
        "gpus_now": dots_of(mine.gpus, read_gpu_styles()),
        "nothing_yet": not _jobs_to_show(request).exists(),
        "teams": teams,
        "shares": shares,
        "gpu_counts": counts,
        "heartbeat": scheduler_health(now),
        "burst": BURST if settings.MOTLEY_DEMO and teams and _is_idle(counts) else 0,
        **_own_rows(request),
    }
    if request.user.is_staff:
        context |= _of_administrator(shares, counts, now)
    return render(request, "pages/home.html", context)


@login_required
@require_POST
def submit_burst(request: SignedInRequest) -> HttpResponse:
    """Submit some sample jobs; on demo sites only."""
    if not settings.MOTLEY_DEMO:
        raise Http404
    try:
        submitted = sum(submit_another(request.user) for _ in range(BURST))
        messages.success(request, f"Submitted {submitted} sample jobs.")
    except DOMAIN_ERRORS as error:
        show_error(request, error)
    return redirect("home")


def _jobs_to_show(request: SignedInRequest) -> QuerySet[Job]:
    """Jobs of the page: without any, it explains how to submit a first one."""
    return Job.objects.all() if request.user.is_staff else Job.objects.filter(owner=request.user)


def _is_idle(counts: Sequence[GpuCounts]) -> bool:
    """Whether more than half of the GPUs in service are idle."""
    return sum(count.idle for count in counts) > sum(count.busy for count in counts)


def _own_rows(request: SignedInRequest) -> dict[str, Any]:
    """Cards of what runs, newest first, and the queue in the order of the forecast."""
    mine = job_rows(request.user).filter(owner=request.user)
    running, queued = mine.active().one_per_array()[:MOST_CARDS], mine.queued().one_per_array()[:MOST_QUEUED]
    rows = read_rows([*running, *queued], Job.objects.visible_to(request.user), arrays_as_one=True)
    waiting = [row for row in rows if row.job.state == Job.State.QUEUED and not (row.tasks and row.gpus)]
    return {
        "cards": _cards([row for row in rows if row.job.state != Job.State.QUEUED]),
        "queue": sorted(waiting, key=lambda row: row.forecast.place if row.forecast else MOST_QUEUED),
        "most_cards": MOST_CARDS,
        "most_queued": MOST_QUEUED,
        "forecast_at": forecast_time(rows),
    }


def _cards(rows: Sequence[JobRow]) -> list[RunningCard]:
    """Cards with the losses that their jobs reported, in one query."""
    curves = ProgressCurve.objects.in_bulk([row.job.pk for row in rows if row.tasks is None])
    cards = []
    for row in rows:
        points = curves[row.job.pk].points if row.job.pk in curves else []
        losses = [loss for _, _, loss, *_ in points if loss is not None]
        cards.append(RunningCard(row, sparkline(losses), losses[-1] if losses else None))
    return cards


def _of_administrator(shares: Sequence[TeamShare], counts: Sequence[GpuCounts], now: datetime) -> dict[str, Any]:
    times_ms = round_times_ms()
    return {
        "pending": pending_gpus(),
        "starved": starved_teams(shares),
        "failures": last_failures(),
        "rounds_line": sparkline(times_ms, least=0.0),
        "slowest_ms": max(times_ms, default=0.0),
        "rounds_shown": len(times_ms),
        "day": _day_of_types(counts, now),
    }


def _day_of_types(counts: Sequence[GpuCounts], now: datetime) -> list[tuple[str, str, float]]:
    """Each GPU type with the area of its utilization over 24 hours, and the mean of the time for which it is known."""
    window = WINDOWS["24h"]
    points, start = utilization(window, now), now - window.length
    day = []
    for count in counts:
        mine = [point for point in points if point.name == count.gpu_type]
        values = [0.0] * (window.length // window.bucket + 1)
        for point in mine:
            values[max((point.at - start) // window.bucket, 0)] = point.value
        mean = sum(point.value for point in mine) / (len(mine) or 1)
        day.append((count.gpu_type, area(values, most=1.0) if mine else "", mean))
    return day
