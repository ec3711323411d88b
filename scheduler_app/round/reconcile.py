"""Reconcile rows with the engines: nodes, attempts, and what follows from them without a scheduling decision."""

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
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
    Value,
)
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast, Ceil, Coalesce, Greatest

from cluster_app.engine_reports import (
    update_node_health,
)
from cluster_app.models import Node, NodeQuerySet
from cluster_app.services import note_drained
from cluster_app.storage import forget_missing_storage
from connections_app.engine_registry import engines
from engines.protocol import EngineError
from jobs_app.lifecycle.attempt_endings import AttemptEnd, end_attempts
from jobs_app.lifecycle.attempts import about_attempt, stop_attempt_of
from jobs_app.lifecycle.dependencies import settle_dependencies
from jobs_app.models import Attempt, GpuClaim, Job
from scheduler_app.models import SchedulerLease
from scheduler_app.round.lease import Fence
from scheduler_app.round.lost_nodes import announce_lost_nodes
from scheduler_app.round.power import sleep_as_reported
from scheduler_app.round.set_aside import forget_recovered
from scheduler_app.round.store_node_reports import hear_engines

log = logging.getLogger(__name__)
State = Attempt.State
Item = TypeVar("Item")
FRESH_WATCH = timedelta(minutes=2)
"""GPUs were last read so recently, or whether they are still idle is not known."""
PER_TRANSACTION = 50
"""Attempts that are told to stop, or declared lost, in one transaction."""


def observe(fence: Fence, now: datetime) -> None:
    """Store the reports of every engine, then act on what follows from them without a scheduling decision."""
    heard = hear_engines(fence, now)
    with fence.transaction():
        lost = update_node_health(
            now,
            listening_since=SchedulerLease.objects.get(pk=SchedulerLease.Loop.ENGINES).listening_since,
            conditions=heard,
        )
        announce_lost_nodes(lost, now)
        sleep_as_reported(heard, now)
        forget_missing_storage(now)
    _end_attempts_on_lost_nodes(fence, now)
    stop_due(fence, [*_over_their_time_limit(now), *_idle(now), *_gpus_idle(now), *_on_draining_nodes()])
    fence.check()
    settle_dependencies()  # in transactions of its own, which lock jobs in their order
    with fence.transaction():
        release_claims(now)
        note_drained(_drained_nodes())
        forget_recovered(now)


def release_claims(now: datetime) -> None:
    """Release the claims of attempts whose processes are proven to have ended."""
    free = GpuClaim.objects.open().filter(attempt__gone_at__isnull=False)
    free.update(released_at=Greatest(now, Coalesce("held_from", now)))  # not before they were held, if a clock was set


def _end_attempts_on_lost_nodes(fence: Fence, now: datetime) -> None:
    """Requeue the jobs of lost nodes; their GPUs stay claimed until the node reports that nothing runs on them."""
    lost = _live_attempts_on(Node.objects.filter(health=Node.Health.LOST))
    for batch in _batches(sorted(lost)):
        ends = {pk: AttemptEnd(now, lost=True, message=f"no heartbeat from {', '.join(lost[pk])}") for pk in batch}
        with fence.transaction():
            for ended in end_attempts(ends):
                with about_attempt(ended.attempt):
                    log.warning("the attempt is declared lost: %s", ended.end.message)


def _live_attempts_on(nodes: NodeQuerySet) -> dict[int, list[str]]:
    """Live attempts with GPUs on these nodes, each with the names of those nodes: by their open claims."""
    claims = GpuClaim.objects.open().filter(gpu__node__in=nodes).exclude(attempt__state=State.ENDED)
    found: dict[int, list[str]] = {}
    for attempt, node in (
        claims.order_by("attempt", "gpu__node__name").values_list("attempt", "gpu__node__name").distinct()
    ):
        found.setdefault(attempt, []).append(node)
    return found


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
    for batch in _batches(due):
        with fence.transaction():
            for job, reason, note in batch:
                stop_attempt_of(Job.objects.get(pk=job), reason, note=note)


def _running() -> QuerySet[Attempt]:
    """Running attempts; the state of the job is named, too, so that those with a limit are found by their index."""
    return Attempt.objects.filter(state=State.RUNNING, job__state=Job.State.RUNNING)


def _over_their_time_limit(now: datetime) -> Iterator[DueStop]:
    """Jobs over their limit by our clock and, where the engine has one that nobody sets, by that one."""
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
    """Durations of attempts by the clocks of their engines, of those that have one."""
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
    """Jobs of which no GPU has been in use for as long as the rule of their team allows.

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
    found = _live_attempts_on(Node.objects.filter(name__in=draining))
    going_on = Attempt.objects.filter(pk__in=found).exclude(state=State.STOPPING)
    for attempt, job in going_on.order_by("pk").values_list("pk", "job"):
        node = found[attempt][0]
        yield DueStop(job, Attempt.StopReason.DRAIN, f"{node}: {draining[node]}")


def _drained_nodes() -> QuerySet[Node]:
    """Draining nodes without a claim on their GPUs."""
    claims = GpuClaim.objects.open().filter(gpu__node=OuterRef("pk"))
    return Node.objects.filter(~Exists(claims), state=Node.State.DRAINING)


def _batches(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    return (items[start : start + PER_TRANSACTION] for start in range(0, len(items), PER_TRANSACTION))
