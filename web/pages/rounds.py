"""Rounds pages: the decision log, one round in detail, and its replay."""

from functools import partial
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from accounting_app.fairness.energy_ledger import energy_between
from allocation.policies import price_meaning
from insight_app.errors import TooManySolves
from insight_app.explain.decisions import decisions_of, rows_seen
from insight_app.explain.round_changes import changes_since_the_last, prices_up_to
from insight_app.explain.round_matrix import cells_of, has_shares
from insight_app.explain.solve_slots import solve_slots
from jobs_app.measurement.energy import Energy
from jobs_app.models import Job
from scheduler_app.errors import NotReplayable
from scheduler_app.models import Round
from scheduler_app.round.archive import Archived, archive_of, is_damaged
from scheduler_app.round.replay import replay_round
from web.pages.base import SignedInRequest, paginate, show_error
from web.pages.job_rows import read_colour_numbers
from web.pages.round_tables import fold_idle, group_by_reason, prices_figure, strip_of
from web.rest.pagination import ByNumber

ROWS = 100
"""Jobs of a round in each table of its page."""
MOST_CHANGES = 1000
"""Jobs that changed among which those are sought that the user may see."""


@login_required
@require_safe
def rounds(request: SignedInRequest) -> HttpResponse:
    """Rounds, newest first, with a strip of bars; those in a row that changed nothing are one line."""
    page = paginate(request, Round.objects.defer("archive"), ByNumber)
    unfolded = request.GET.get("idle") == "show"
    lines = page["rows"] if unfolded else fold_idle(page["rows"])
    context = page | {"strip": strip_of(page["rows"]), "lines": lines, "unfolded": unfolded}
    return render(request, "pages/rounds.html", context)


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
    archived, energy = archive_of(record), energy_between(record.started_at, record.in_force_until())
    context = {
        "round": record,
        "archived": archived,
        "damaged": archived is None and is_damaged(record),
        "seconds": sum(record.seconds.values()),
        "energy": energy,
        "energy_in_all": Energy.sum(one.energy for one in energy),
        **more,
    }
    if archived:
        context |= _split_by_sight(request, number, archived) | {"types": _types(archived, record)}
        context["price_meaning"] = price_meaning(record.policy)
        context |= _changes(request, record, archived) | _prices(record)
    return render(request, "pages/round.html", context)


def _types(archived: Archived, record: Round) -> list[dict[str, Any]]:
    """GPUs of each type, and how many of them the round allocated."""
    problem, assignment = archived.snapshot.problem, archived.plan.assignment
    given = problem.usage[:, assignment[assignment >= 0]].sum(axis=1)
    return [
        {"name": name, "gpus": int(gpus), "given": int(used), "price": record.prices.get(name)}
        for name, gpus, used in zip(archived.snapshot.types, problem.capacity, given, strict=True)
    ]


def _changes(request: SignedInRequest, record: Round, archived: Archived) -> dict[str, Any]:
    """What changed since the last round, of the jobs that the user may see."""
    last, changes = changes_since_the_last(record, archived)
    some = changes[:MOST_CHANGES]
    jobs = Job.objects.visible_to(request.user).select_related("team").in_bulk([UUID(change.job) for change in some])
    seen = [(change, jobs[UUID(change.job)]) for change in some if UUID(change.job) in jobs]
    return {"last": last, "changes": seen[:ROWS], "changed": len(changes)}


def _prices(record: Round) -> dict[str, Any]:
    history = prices_up_to(record)
    return (
        {"price_history": history[::-1], "price_figure": prices_figure(history, read_colour_numbers())}
        if history[-1:]
        else {}
    )


def _split_by_sight(request: SignedInRequest, number: int, archived: Archived) -> dict[str, Any]:
    """Decisions on jobs with GPUs and on waiting jobs: a part of those that the user may see, and the other count."""
    runs = archived.plan.assignment >= 0
    parts = {"placed": runs.nonzero()[0].tolist(), "left": (~runs).nonzero()[0].tolist()}
    split = {name: _part(request, number, archived, name, rows) for name, rows in parts.items()}
    return split | {"groups": group_by_reason(split["left"]["decisions"]), "has_shares": has_shares(archived)}


def _part(request: SignedInRequest, number: int, archived: Archived, name: str, rows: list[int]) -> dict[str, Any]:
    """`ROWS` decisions, from the position in the query on."""
    jobs = Job.objects.visible_to(request.user)
    seen, start = list(rows_seen(archived, jobs, rows)), _position(request.GET.get(name, "0"))
    some = seen[start : start + ROWS]
    decisions = [
        it | {"cells": cells_of(archived, row)} for it, row in zip(decisions_of(archived, some), some, strict=True)
    ]
    named = {str(pk): job for pk, job in jobs.select_related("team").in_bulk([it["job"] for it in decisions]).items()}
    link = partial(_link, request.GET, number, name)
    return {
        "decisions": [it | {"job": named[it["job"]]} for it in decisions if it["job"] in named],
        "hidden": len(rows) - len(seen),
        "total": len(seen),
        "newer": link(start - ROWS) if start > 0 else None,
        "older": link(start + ROWS) if start + ROWS < len(seen) else None,
    }


def _position(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Http404
    return int(text)


def _link(query: QueryDict, number: int, name: str, position: int) -> str:
    """The page of the round with this part from this position on, and the other as it is."""
    query = query.copy()
    query[name] = str(max(position, 0))
    return f"{reverse('round', args=[number])}?{query.urlencode()}"
