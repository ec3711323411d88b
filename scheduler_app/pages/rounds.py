"""Rounds pages: the decision log, one round in detail, and its replay."""

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_POST, require_safe

from jobs_app.models import Job
from rest.pagination import ByNumber
from scheduler_app.errors import NotReplayable, TooManySolves
from scheduler_app.explain.decisions import decisions_of
from scheduler_app.explain.solve_slots import solve_slots
from scheduler_app.models import Round
from scheduler_app.pages.base import SignedInRequest, paginate, show_error
from scheduler_app.round.archive import archive_of
from scheduler_app.round.replay import replay_round


@login_required
@require_safe
def rounds(request: SignedInRequest) -> HttpResponse:
    page = paginate(request, Round.objects.defer("archive"), ByNumber)
    return render(request, "scheduler_app/rounds.html", page)


@login_required
@require_safe
def round_opened(request: SignedInRequest, number: int) -> HttpResponse:
    return _page(request, number)


@login_required
@require_POST
def replay(request: SignedInRequest, number: int) -> HttpResponse:
    """Solve the round again from its snapshot and compare the decisions."""
    try:
        with solve_slots.slot_for(request.user):
            _, again, equal = replay_round(number)
    except (NotReplayable, TooManySolves) as error:
        show_error(request, error)
        return _page(request, number)
    return _page(request, number, replayed=True, equal=equal, solve_ms=1000 * again.decision.solve_seconds)


def _page(request: SignedInRequest, number: int, **more: Any) -> HttpResponse:
    record = get_object_or_404(Round.objects.defer("archive"), number=number)
    archived = archive_of(record)
    context = {
        "round": record,
        "archived": archived,
        "seconds": sum(record.seconds.values()),
        **more,
    }
    if archived:
        decisions = list(decisions_of(archived))
        capacity = archived.snapshot.problem.capacity.tolist()
        context |= _split_by_sight(request, decisions)
        context["types"] = [
            {
                "name": name,
                "gpus": int(gpus),
                "given": sum(decision["gpus"] for decision in decisions if decision["gpu_type"] == name),
                "price": record.prices.get(name),
            }
            for name, gpus in zip(archived.snapshot.types, capacity, strict=True)
        ]
    return render(request, "scheduler_app/round.html", context)


def _split_by_sight(request: SignedInRequest, decisions: list[dict[str, Any]]) -> dict[str, Any]:
    """Decisions on jobs that the user may see, and the numbers of the others."""
    ids = [decision["job"] for decision in decisions]
    jobs = Job.objects.visible_to(request.user).select_related("team").in_bulk(ids)
    by_id = {str(pk): job for pk, job in jobs.items()}
    seen = [decision | {"job": by_id[decision["job"]]} for decision in decisions if decision["job"] in by_id]
    hidden = [decision for decision in decisions if decision["job"] not in by_id]
    return {
        "placed": [decision for decision in seen if decision["gpus"]],
        "left": [decision for decision in seen if not decision["gpus"]],
        "hidden_placed": sum(bool(decision["gpus"]) for decision in hidden),
        "hidden_left": sum(not decision["gpus"] for decision in hidden),
    }
