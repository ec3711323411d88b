"""Home page: the user's jobs, shares of teams and, for staff, the cluster and the scheduler's health."""

from datetime import timedelta

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from scheduler_app.fairness.usage_ledger import team_shares
from scheduler_app.job_forecasts.showing import read_forecasts
from scheduler_app.operations.gpu_occupancy import gpu_counts
from scheduler_app.operations.health import scheduler_health
from scheduler_app.pages.base import SignedInRequest, emulated_nodes, job_rows

WINDOW = timedelta(days=7)
MOST_JOBS = 20


@login_required
@require_safe
def home(request: SignedInRequest) -> HttpResponse:
    now = timezone.now()
    mine = job_rows(request.user).filter(owner=request.user)
    teams = list(request.user.teams.values_list("name", flat=True))
    shares = [share for share in team_shares(now - WINDOW) if request.user.is_staff or share.team in teams]
    unfinished = list(mine.unfinished()[:MOST_JOBS])
    context = {
        "jobs": unfinished,
        "forecasts": read_forecasts(unfinished),
        "most_jobs": MOST_JOBS,
        "nothing_yet": not mine.exists(),
        "emulated_nodes": emulated_nodes(),
        "teams": teams,
        "shares": shares,
        "gpu_counts": gpu_counts() if request.user.is_staff else [],
        "heartbeat": scheduler_health(now),
    }
    return render(request, "scheduler_app/home.html", context)
