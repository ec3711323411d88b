"""Node page: its agent, readings of its GPUs, its lifetime estimated from past intervals, and its history."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.views.decorators.http import require_safe

from accounting_app.gpu_watch.history import GpuNow, course_of_node, gpus_now
from cluster_app.lending import hours_of
from cluster_app.models import Gpu, Node, NodeInterval
from connections_app.agents.engine import FAULT_KEPT
from connections_app.agents.program import runs_own_program
from connections_app.agents.updates import update_fault_of
from connections_app.models import Agent
from estimation.node_lifetimes import kaplan_meier
from insight_app.explain.drain_estimate import occupancies
from jobs_app.models import Attempt, GpuClaim, Job
from scheduler_app.round.node_lifetimes import known_lifetimes
from scheduler_app.windows.reading import read_windows
from web.pages.base import SignedInRequest
from web.pages.gpu_charts import gpu_figures

HORIZONS_S = (600, 3600, 8 * 3600, 86_400, 7 * 86_400)
LEAST_LOSSES = 3
"""With fewer of its own, a node's survival curve is that of its capacity type."""
MOST_INTERVALS = 5000
SHOWN = 20
MOST_CLAIMS = 400
"""Claims on its GPUs among which the latest attempts are sought."""
CHARTED = timedelta(hours=24)
"""What charts of its GPUs show."""


@login_required
@require_safe
def node(request: SignedInRequest, name: str) -> HttpResponse:
    seen, now = get_object_or_404(Node.objects.select_related("gpu_type"), name=name), timezone.now()
    known = known_lifetimes([name], now)[name]
    alike = NodeInterval.objects.filter(node__capacity_type=seen.capacity_type)
    of_its_own = known.observed.losses >= LEAST_LOSSES
    context: dict[str, Any] = {
        "node": seen,
        "price": seen.gpu_type.price_per_hour if seen.price_per_gpu_hour is None else seen.price_per_gpu_hour,
        "hours": hours_of(seen),
        "windows": [row for row in read_windows(now) if seen.pk in row.nodes],
        "known": known,
        **_occupancy(request, seen, now),
        **_server(request, seen, now),
        "survival": _survival(seen.intervals.all() if of_its_own else alike, now),
        "of_its_own": of_its_own,
        "intervals": [(interval, _length_s(interval, now)) for interval in seen.intervals.all()[:SHOWN]],
        "figures": gpu_figures(course_of_node(seen.pk, now - CHARTED, now)),
        "gpus": (gpus := _gpus(seen, now)),
        "slowness": _slowness_of_node([gpu for gpu, _ in gpus]),
        "attempts": _attempts_lately(request, seen),
        "events": (events := seen.events.select_related("actor")[:SHOWN]),
        "taken_out": next((event for event in events if event.message == seen.reason), None) if seen.reason else None,
    }
    return render(request, "pages/node.html", context)


def _server(request: SignedInRequest, node: Node, now: datetime) -> dict[str, Any]:
    """The agent of the node and what it has found there, for administrators and the team whose machine it is."""
    found = Agent.objects.visible_to(request.user).filter(name=node.name, engine__name=node.engine_id).first()
    if found is None:
        return {}
    return {
        "server": found,
        "server_state": found.state_at(now),
        "server_is_current": runs_own_program(found),
        "server_update_fault": update_fault_of(found, now),
        "server_fault_holds": found.fault_at is not None and abs(now - found.fault_at) < FAULT_KEPT,
        "own_release": settings.MOTLEY_VERSION,
    }


def _occupancy(request: SignedInRequest, node: Node, now: datetime) -> dict[str, Any]:
    """Attempts on the node, and when it will be empty, or would be if it were cordoned now."""
    in_service = node.state == Node.State.READY
    found = occupancies([node], now, if_state=Node.State.CORDONED if in_service else None)[node.name]
    seen = Job.objects.visible_to(request.user).filter(pk__in=[job.pk for job in found.jobs])
    return {"occupancy": found, "in_service": in_service, "jobs": seen[:SHOWN]}


def _attempts_lately(request: SignedInRequest, node: Node) -> list[Attempt]:
    """The latest attempts with a claim on its GPUs, of jobs that the user may see."""
    claims = GpuClaim.objects.filter(gpu__node=node).order_by("-pk").values_list("attempt", flat=True)[:MOST_CLAIMS]
    jobs = Job.objects.visible_to(request.user)
    attempts = Attempt.objects.filter(pk__in=list(claims), job__in=jobs).select_related("job__team", "gpu_type")
    return list(attempts.order_by("-pk")[:SHOWN])


def _gpus(node: Node, now: datetime) -> list[tuple[Gpu, GpuNow | None]]:
    """GPUs of the node, with the readings of the last two minutes."""
    read = {one.index: one for one in gpus_now(now, node.pk)}
    return [(gpu, read.get(gpu.index)) for gpu in node.gpu_set.present().order_by("index")]


def _slowness_of_node(gpus: Sequence[Gpu]) -> str:
    """Slowness of all of its GPUs together; empty if there is none, or only of some."""
    told = {gpu.slowness for gpu in gpus if gpu.slower_together == len(gpus) > 1}
    return next(iter(told)) if len(told) == 1 and all(gpu.slower_by for gpu in gpus) else ""


def _survival(intervals: QuerySet[NodeInterval], now: datetime) -> Sequence[tuple[int, float]]:
    """Probability of staying up for each horizon (Kaplan-Meier); empty if no end was observed."""
    rows = list(intervals.filter(up=True)[:MOST_INTERVALS])
    length = np.array([_length_s(row, now) for row in rows])
    ended = np.array(
        [row.end in (NodeInterval.End.CHANGED, NodeInterval.End.ANNOUNCED) for row in rows], dtype=np.bool_
    )
    if not ended.any():
        return []
    return list(zip(HORIZONS_S, kaplan_meier(length, ended).at(np.array(HORIZONS_S)).tolist(), strict=True))


def _length_s(interval: NodeInterval, now: datetime) -> float:
    return max(((interval.ended_at or now) - interval.started_at).total_seconds(), 0.0)
