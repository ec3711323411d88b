"""Rules that stop running jobs: time limit, idle limit, idle GPUs, drain, and approaching windows."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar
from uuid import UUID

from django.db.models import (
    DateTimeField,
    DurationField,
    Exists,
    ExpressionWrapper,
    F,
    IntegerField,
    OuterRef,
    QuerySet,
    Subquery,
    Value,
)
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast, Ceil, Coalesce

from cluster_app.models import Node, NodeQuerySet
from connections_app.engine_registry import engines
from engines.protocol import EngineError
from jobs_app.lifecycle.attempts import StopOrder, stop_attempts
from jobs_app.models import Attempt, GpuClaim, Job
from scheduler_app.models import SchedulerLease
from scheduler_app.round.lease import Fence
from scheduler_app.windows.reading import LONGEST_SAVING, MARGIN, WindowRow, time_to_save

State = Attempt.State
Item = TypeVar("Item")
FRESH_WATCH = timedelta(minutes=2)
"""GPUs were last read so recently, or whether they are still idle is not known."""
PER_TRANSACTION = 500
"""Attempts that are told to stop, or declared lost, in one transaction."""


def due_stops(now: datetime) -> list["DueStop"]:
    """Jobs that a rule other than windows stops now."""
    return [*_over_their_time_limit(now), *_idle(now), *_gpus_idle(now), *_on_draining_nodes()]


class Limited(NamedTuple):
    """A running attempt that is over its job's time limit by our clock."""

    attempt: int
    engine: str
    job: UUID
    ran_s: float
    """Of the job's earlier attempts."""
    limit_s: int


class DueStop(NamedTuple):
    """A job that is to be stopped, why, and a note for its people."""

    job: UUID
    reason: Attempt.StopReason
    note: str


def stop_due(fence: Fence, due: Sequence[DueStop]) -> None:
    """Stop these jobs gracefully, some in each transaction."""
    for batch in batches(due):
        orders: dict[UUID, StopOrder] = {}
        for job, reason, note in batch:  # of several rules the first counts
            orders.setdefault(job, StopOrder(reason, note))
        with fence.transaction():
            stop_attempts(orders)


def _running() -> QuerySet[Attempt]:
    """Running attempts; the state of the job is named, too, so that those with a limit are found by their index."""
    return Attempt.objects.filter(state=State.RUNNING, job__state=Job.State.RUNNING)


def _over_their_time_limit(now: datetime) -> Iterator[DueStop]:
    """Jobs over their limit by our clock and, if the engine has one, by its monotonic clock."""
    left_s = F("job__time_limit_s") - F("job__ran_s")
    running = _running().filter(job__time_limit_s__isnull=False)
    over = running.annotate(until=_seconds_after(F("started_at"), left_s)).filter(until__lt=now)
    columns = ("pk", "engine", "job", "job__ran_s", "job__time_limit_s")
    due = [Limited(*row) for row in over.values_list(*columns)]
    measured = _measured([(one.engine, one.attempt) for one in due])
    for one in due:
        if one.attempt not in measured or one.ran_s + measured[one.attempt] > one.limit_s:
            yield DueStop(one.job, Attempt.StopReason.TIMEOUT, f"the limit is {one.limit_s} s")


def _measured(attempts: Sequence[tuple[str, int]]) -> dict[int, float]:
    """Durations of attempts by the monotonic clocks of the engines that have one."""
    by_engine: dict[str, list[int]] = defaultdict(list)
    for engine, attempt in attempts:
        by_engine[engine].append(attempt)
    found: dict[int, float] = {}
    known = engines() if by_engine else {}
    for engine, its in by_engine.items():
        with suppress(EngineError):  # it is heard again at the next turn
            reports = known[engine].poll(its)
            found |= {report.attempt: report.ran_s for report in reports if report.ran_s is not None}
    return found


def _seconds_after(time: Combinable, seconds: Combinable) -> Combinable:
    """The time so many seconds later, computed by the database: thousands of rows that are not due are not read."""
    whole = Cast(Ceil(seconds), IntegerField())  # SQLite adds no fractions of a microsecond
    duration = ExpressionWrapper(whole * Value(timedelta(seconds=1)), DurationField())
    return ExpressionWrapper(time + duration, DateTimeField())


def _idle(now: datetime) -> Iterator[DueStop]:
    """Jobs whose sessions have not been in use for their idle limit, and that have run for so long."""
    running = _running().filter(job__idle_limit_s__isnull=False)
    unused = running.annotate(until=_seconds_after(Coalesce("session_at", "started_at"), F("job__idle_limit_s")))
    columns = ("pk", "engine", "job", "job__idle_limit_s")
    due = list(unused.filter(until__lte=now).values_list(*columns))
    measured = _measured([(engine, attempt) for attempt, engine, *_ in due])
    for attempt, _, job, limit_s in due:
        if measured.get(attempt, limit_s) >= limit_s:  # else a clock was set forward
            yield DueStop(job, Attempt.StopReason.TIMEOUT, f"no session was in use for {limit_s} s")


def _gpus_idle(now: datetime) -> Iterator[DueStop]:
    """Jobs that have used none of their GPUs for longer than the rule of their team allows.

    After a time in which GPUs were not watched, or a clock was set, `idle_since` proves nothing: none is stopped then.
    """
    limit_min = F("job__team__idle_gpus_limit_min")
    watched = SchedulerLease.objects.filter(pk=SchedulerLease.Loop.ENGINES, watched_at__range=(now - FRESH_WATCH, now))
    idle = _running().filter(Exists(watched), idle_gpus=F("gpu_count"), job__team__idle_gpus_limit_min__isnull=False)
    due = idle.annotate(until=_seconds_after(F("idle_since"), limit_min * 60)).filter(until__lte=now)
    for job, minutes, team in due.values_list("job", "job__team__idle_gpus_limit_min", "job__team__name"):
        note = f"none of its GPUs was in use for {minutes} minutes, the limit of the team {team}"
        yield DueStop(job, Attempt.StopReason.TIMEOUT, note)


def _on_draining_nodes() -> Iterator[DueStop]:
    draining = dict(Node.objects.filter(state=Node.State.DRAINING).values_list("name", "reason"))
    found = live_attempts_on(Node.objects.filter(name__in=draining))
    going_on = Attempt.objects.filter(pk__in=found).exclude(state=State.STOPPING)
    for attempt, job in going_on.order_by("pk").values_list("pk", "job"):
        node = found[attempt][0]
        yield DueStop(job, Attempt.StopReason.DRAIN, f"{node}: {draining[node]}")


def live_attempts_on(nodes: NodeQuerySet) -> dict[int, list[str]]:
    """Live attempts with GPUs on these nodes, each with the names of those nodes: by their open claims."""
    claims = GpuClaim.objects.open().filter(gpu__node__in=nodes).exclude(attempt__state=State.ENDED)
    found: dict[int, list[str]] = {}
    for attempt, node in (
        claims.order_by("attempt", "gpu__node__name").values_list("attempt", "gpu__node__name").distinct()
    ):
        found.setdefault(attempt, []).append(node)
    return found


def batches(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Parts of these that fit in a transaction each."""
    return (items[start : start + PER_TRANSACTION] for start in range(0, len(items), PER_TRANSACTION))


# -- windows -------------------------------------------------------------------------------------------------------


def stop_before_windows(fence: Fence, windows: Sequence[WindowRow], now: datetime) -> None:
    """Stop the jobs on nodes whose window is so near that they must save their work now. Idempotent."""
    if near := [row for row in windows if row.begins_at < now + LONGEST_SAVING + MARGIN]:
        stop_due(fence, list(_due(near, now)))


def _due(near: Sequence[WindowRow], now: datetime) -> Iterator[DueStop]:
    """Jobs that an approaching window stops now."""
    nodes = {node for row in near for node in row.nodes}
    for one in _that_save(nodes):
        saving = time_to_save(one.grace_s, one.checkpoint_s)
        for window in near:
            if one.node_id in window.nodes and one.team_id != window.team_id and window.begins_at - saving <= now:
                yield DueStop(one.job, Attempt.StopReason.DRAIN, f"{one.node}: {window.words}"[:500])
                break


class CheckpointSave(NamedTuple):
    """A job with GPUs on a node, and how long it takes to save its work."""

    job: UUID
    team_id: int
    grace_s: int
    checkpoint_s: float | None
    node_id: int
    node: str


def _that_save(nodes: Collection[int]) -> Iterator[CheckpointSave]:
    """Jobs with live attempts on these nodes that are not stopping yet, each once."""
    claims = GpuClaim.objects.open().filter(gpu__node__in=nodes)
    going_on = claims.exclude(attempt__state__in=(State.STOPPING, State.ENDED))
    told = Attempt.objects.filter(job=OuterRef("attempt__job"), checkpoint_s__isnull=False).order_by("-number")
    with_last = going_on.annotate(last_checkpoint_s=Subquery(told.values("checkpoint_s")[:1]))
    of_attempt = [f"attempt__{column}" for column in ("job", "job__team_id", "job__grace_s")]
    columns = (*of_attempt, "last_checkpoint_s", "gpu__node", "gpu__node__name")
    rows = with_last.order_by("attempt", "gpu__node").values_list(*columns)
    yield from (CheckpointSave(*row) for row in rows.distinct())
