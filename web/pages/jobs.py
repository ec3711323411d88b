"""Jobs page: the filtered list, and the actions cancel, hold, release and requeue on one job."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse, HttpResponseNotAllowed, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from insight_app.explain.array_progress import array_progress
from insight_app.explain.attempt_explanations import cancel_cost
from jobs_app.filters import JobFilter, searches_one_job
from jobs_app.job_archive import archived_job
from jobs_app.lifecycle.commands import cancel_job, hold_job, release_job, requeue_job
from jobs_app.models import Attempt, Job, Team
from jobs_app.models.job import JobQuerySet
from web.pages.base import DOMAIN_ERRORS, SignedInRequest, job_rows, paginate, show_error
from web.pages.job import TABS
from web.pages.job_rows import StateSegment, count_ended, count_states, forecast_time, read_rows, stacked
from web.pages.job_selection import selected_jobs

FILTERS = {
    "q": "name or id",
    "name": "name",
    "state": "state",
    "team": "team",
    "owner": "owner",
    "array": "array",
    "recurring": "recurring job",
    "recipe": "recipe",
    "tag": "tag",
    "command": "command",
}


@login_required
@require_safe
def jobs(request: SignedInRequest) -> HttpResponse:
    asked = _without_blanks(request.GET)
    seen = job_rows(request.user)
    filtered = JobFilter(asked, queryset=seen)
    arrays_as_one = "array" not in asked and not searches_one_job(asked.get("q", ""))
    teams = Team.objects.all() if request.user.is_staff else request.user.teams.all()
    context = paginate(request, filtered.qs.one_per_array() if arrays_as_one else filtered.qs) | {
        "asked": asked,
        "chips": _chips(asked),
        "faults": dict(filtered.errors) | _unknown(request.GET),
        "views": _views(request.user.get_username(), asked),
        "states": Job.State.choices,
        "teams": teams.values_list("name", flat=True),
        "state_bar": _state_bar(asked, seen),
    }
    context["listed"] = read_rows(context["rows"], Job.objects.visible_to(request.user), arrays_as_one=arrays_as_one)
    context["forecast_at"] = forecast_time(context["listed"])
    if (array := filtered.form.cleaned_data.get("array")) is not None:
        context["array"] = array_progress(array, Job.objects.visible_to(request.user), timezone.now())
    if not context["rows"]:
        context["archived"] = archived_job(asked.get("q", "").strip(), request.user)
    return render(request, "pages/jobs.html", context)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def cancel(request: SignedInRequest) -> HttpResponse:
    """Cancel the selected jobs. GET, or POST with `ask`: a page with the work at risk that asks for confirmation."""
    found, left = selected_jobs(request, request.POST if request.method == "POST" else request.GET)
    if request.method == "POST" and "ask" not in request.POST:
        return _cancel_all(request, found)
    attempts: dict[UUID, list[Attempt]] = defaultdict(list)
    for attempt in Attempt.objects.filter(job__in=found).select_related("gpu_type"):
        attempts[attempt.job_id].append(attempt)
    costs = [cancel_cost(job, attempts[job.pk], timezone.now()) for job in found if not job.is_final]
    unsaved_gpu_s = sum(cost.unsaved_gpu_s for cost in costs)
    context = {"costs": costs, "unsaved_gpu_s": unsaved_gpu_s, "over": len(found) - len(costs), "left": left}
    return render(request, "pages/cancel.html", context)


def _cancel_all(request: SignedInRequest, found: list[Job]) -> HttpResponse:
    done = sum(_did(request, cancel_job, job) for job in found)
    if done:
        messages.success(request, f"Cancelling {found[0]}." if len(found) == 1 else f"Cancelling {done} jobs.")
    return redirect("job", found[0].pk) if len(found) == 1 else redirect("jobs")


VERBS: dict[str, tuple[Callable[..., None], str]] = {
    "hold": (hold_job, "is held: it stays queued until you release it."),
    "release": (release_job, "is released: it takes part in the next round."),
    "requeue": (requeue_job, "is being stopped gracefully and will be requeued."),
}


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def act(request: SignedInRequest, pk: UUID, verb: str) -> HttpResponse:
    """Hold, release or requeue a job. With a GET the tab of this name, as `/jobs/ID/logs`."""
    if request.method != "POST" and verb in TABS:
        return redirect(f"{reverse('job', args=[pk])}?tab={verb}")
    if verb not in VERBS:
        raise Http404
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    job = get_object_or_404(Job.objects.visible_to(request.user), pk=pk)
    command, outcome = VERBS[verb]
    if _did(request, command, job):
        messages.success(request, f"{job} {outcome}")
    return redirect("job", pk)


def _did(request: SignedInRequest, command: Callable[..., None], job: Job) -> bool:
    try:
        command(job, actor=request.user)
    except DOMAIN_ERRORS as error:
        show_error(request, error)
        return False
    return True


def _state_bar(asked: QueryDict, seen: JobQuerySet) -> list[tuple[StateSegment, str]]:
    """Jobs by state, as the other filters have them, each state with the address of its list; those that ended last."""
    others = asked.copy()
    others.pop("state", None)
    jobs = JobFilter(others, queryset=seen).qs
    pairs = [(name, value) for name in FILTERS for value in others.getlist(name)]
    segments = [*stacked(count_states(jobs.unfinished())), *count_ended(jobs)]
    return [(one, f"?{urlencode([*pairs, ('state', one.state)])}") for one in segments]


def _unknown(asked: QueryDict) -> dict[str, list[str]]:
    """Query parameters that the page does not have."""
    known = {*FILTERS, *JobFilter.base_filters, "cursor", "limit"}
    return {
        name[:60]: [f"There is no such filter. There are: {', '.join(FILTERS)}."] for name in asked if name not in known
    }


def _without_blanks(asked: QueryDict) -> QueryDict:
    """Drop empty filter fields: they mean any value."""
    kept = QueryDict(mutable=True)
    for name, values in asked.lists():
        if filled := [value for value in values if value]:
            kept.setlist(name, filled)
    return kept


def _chips(asked: QueryDict) -> list[dict[str, str]]:
    """Active filters, each with the address of the list without it."""
    pairs = [(name, value) for name in FILTERS for value in asked.getlist(name)]
    return [
        {
            "field": name,
            "name": FILTERS[name],
            "value": value.replace("_", " ") if name == "state" else value,
            "without": f"?{urlencode([pair for pair in pairs if pair != (name, value)])}",
        }
        for name, value in pairs
    ]


def _views(username: str, asked: QueryDict) -> list[dict[str, Any]]:
    """Predefined lists."""
    unfinished = [("state", state.value) for state in (Job.State.QUEUED, *Job.ACTIVE)]
    named: dict[str, list[tuple[str, str]]] = {
        "All": [],
        "Mine": [("owner", username)],
        "Unfinished": unfinished,
        "Queued": [("state", Job.State.QUEUED)],
        "Running": [("state", Job.State.RUNNING)],
        "Failed": [("state", Job.State.FAILED), ("state", Job.State.TIMED_OUT)],
    }
    now = sorted((name, value) for name in FILTERS for value in asked.getlist(name))
    return [
        {"name": name, "address": f"?{urlencode(pairs)}", "current": sorted(pairs) == now}
        for name, pairs in named.items()
    ]
