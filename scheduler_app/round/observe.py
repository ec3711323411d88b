"""Reconcile rows with the engines' reports: attempts run, progress and end; GPUs proven free are released."""

import logging
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Coalesce, Greatest

from cluster_app.models import Node
from cluster_app.services import note_gpu_health, record_heartbeats, update_node_health
from engines.protocol import AttemptReport, Engine, EngineError, Phase, Progress, StopReason
from jobs_app.lifecycle.attempts import (
    AttemptIsNotLive,
    about_attempt,
    end_attempt,
    note_running,
    record_process_exit_proof,
    stop_attempt_of,
)
from jobs_app.lifecycle.dependencies import settle_dependencies
from jobs_app.measurement.rates import Advance, note_progress, record_unreadable_lines
from jobs_app.models import Attempt, Job
from scheduler_app.models import GpuClaim, SchedulerLease
from scheduler_app.round.engine_registry import engines

log = logging.getLogger(__name__)
State = Attempt.State
GOING_ON = (Phase.LAUNCHING, Phase.RUNNING)
ENDS_PER_TRANSACTION = 50
"""Ends of attempts in one transaction: one each would wait for the disk a thousand times after an outage."""


def observe(now: datetime) -> None:
    """Store the reports of every engine, then act on what follows from them without a scheduling decision."""
    for name, engine in engines().items():
        nodes = engine.nodes()
        record_heartbeats([node.name for node in nodes], now=now)
        for node in nodes:
            note_gpu_health(node.name, {gpu.uuid: gpu.healthy for gpu in node.gpus if gpu.uuid})
        _store_reports(name, engine, now)
    update_node_health(now, listening_since=SchedulerLease.objects.get().listening_since)
    _end_attempts_on_lost_nodes(now)
    _stop_at_time_limit(now)
    _stop_attempts_on_draining_nodes()
    settle_dependencies()
    release_claims(now)


def release_claims(now: datetime) -> None:
    """Release the claims of attempts whose processes are proven to have ended."""
    free = GpuClaim.objects.open().filter(attempt__gone_at__isnull=False)
    free.update(released_at=Greatest(now, Coalesce("held_from", now)))  # not before they were held, if a clock was set


def _store_reports(engine_name: str, engine: Engine, now: datetime) -> None:
    ungone = Attempt.objects.ungone().filter(engine=engine_name).exclude(state=State.CLAIMED)
    known = {row[0]: StoredAttempt(*row) for row in ungone.values_list(*StoredAttempt._fields)}
    reports = [report for report in engine.poll(known) if _is_news(known[report.attempt], report)]
    note_progress([_advance(report, report.progress) for report in reports if report.progress])
    record_unreadable_lines(
        {r.attempt: r.invalid_lines for r in reports if r.invalid_lines > known[r.attempt].invalid_lines}
    )
    note_running({r.attempt: r.started_at or now for r in reports if _has_begun(known[r.attempt], r)})
    over = [r for r in reports if r.phase not in GOING_ON or known[r.attempt].state == State.ENDED]
    over.sort(key=lambda report: known[report.attempt].job_id)  # rows are locked in the order of jobs, as everywhere
    for start in range(0, len(over), ENDS_PER_TRANSACTION):
        with transaction.atomic():
            for report in over[start : start + ENDS_PER_TRANSACTION]:
                _conclude(report, engine, now)


class StoredAttempt(NamedTuple):
    """The stored columns that a report is compared with; attempts without news are read no further."""

    pk: int
    job_id: UUID
    state: str
    started_at: datetime | None
    reports: int
    invalid_lines: int


def _is_news(known: StoredAttempt, report: AttemptReport) -> bool:
    as_before = report.phase in GOING_ON and known.state != State.ENDED and not _has_reported(known, report)
    return not as_before or _has_begun(known, report)


def _has_reported(known: StoredAttempt, report: AttemptReport) -> bool:
    reports = report.progress.reports if report.progress else 0
    return reports > known.reports or report.invalid_lines > known.invalid_lines


def _has_begun(known: StoredAttempt, report: AttemptReport) -> bool:
    """Whether the report is the first of a start; also true of one that has ended already, unless it never began."""
    began = report.phase == Phase.RUNNING or (report.phase == Phase.ENDED and report.started_at is not None)
    return began and known.state != State.ENDED and known.started_at is None


def _conclude(report: AttemptReport, engine: Engine, now: datetime) -> None:
    attempt = Attempt.objects.select_related("job").get(pk=report.attempt)
    with about_attempt(attempt):
        try:
            _apply(attempt, report, engine, now)
        except AttemptIsNotLive:
            log.info("the attempt had already ended")
        except EngineError:  # retried at the next tick; the reports of other attempts are processed meanwhile
            log.exception("the stop command could not be sent")


def _apply(attempt: Attempt, report: AttemptReport, engine: Engine, now: datetime) -> None:
    if attempt.state == State.ENDED:
        return _handle_late_report(attempt, report, engine, now)
    match report.phase:
        case Phase.ENDED:
            _end(attempt, report, now)
        case Phase.LOST:
            _end(attempt, report, now, lost=True)
        case Phase.UNKNOWN if attempt.state == State.LAUNCHING:
            Attempt.objects.filter(pk=attempt.pk, state=State.LAUNCHING).update(launched_at=None)
        case Phase.UNKNOWN if attempt.state == State.STOPPING and not attempt.stop_told_at:
            pass  # a launch in flight could still start it until the engine has the stop command
        case Phase.UNKNOWN:  # stopped before it began: nothing is lost
            _end(attempt, report, now, lost=attempt.started_at is not None)
    return None


def _handle_late_report(attempt: Attempt, report: AttemptReport, engine: Engine, now: datetime) -> None:
    """Handle a report on an attempt that was declared lost: kill what is left of it, or record that it is gone."""
    if report.proven_gone:
        record_process_exit_proof(attempt, at=now)
    else:
        engine.stop(attempt.pk, reason=StopReason.CANCEL, grace=timedelta(0))


def _end(attempt: Attempt, report: AttemptReport, now: datetime, *, lost: bool = False) -> None:
    verdict = end_attempt(
        attempt,
        ended_at=report.ended_at or now,
        exit_code=report.exit_code,
        lost=lost,
        gone=report.proven_gone,
        message=report.message,
    )
    log.info("the attempt ended: %s; its job is %s", verdict.outcome.label, verdict.state.label)


def _advance(report: AttemptReport, progress: Progress) -> Advance:
    return Advance(
        attempt=report.attempt,
        reports=progress.reports,
        first_step=progress.first_step,
        first_at=progress.first_at,
        step=progress.step,
        at=progress.at,
        loss=progress.loss,
        batch_size=progress.batch_size,
        grad_sqr=progress.grad_sqr,
        grad_var=progress.grad_var,
    )


def _end_attempts_on_lost_nodes(now: datetime) -> None:
    """Requeue the jobs of lost nodes; their GPUs stay claimed until the node reports that nothing runs on them."""
    lost = set(Node.objects.filter(health=Node.Health.LOST).values_list("name", flat=True))
    if not lost:
        return
    for attempt in Attempt.objects.live():
        silent = lost & set(attempt.nodes)
        if silent:
            message = f"no heartbeat from {', '.join(sorted(silent))}"
            with about_attempt(attempt), suppress(AttemptIsNotLive):  # ended meanwhile by a report or a person
                end_attempt(attempt, lost=True, ended_at=now, message=message)
                log.warning("the attempt is declared lost: %s", message)


def _stop_at_time_limit(now: datetime) -> None:
    running = Attempt.objects.filter(state=State.RUNNING, job__time_limit_s__isnull=False)
    rows = running.values_list("job", "started_at", "job__ran_s", "job__time_limit_s")
    for job, started_at, ran_s, limit_s in rows:
        if started_at and limit_s and ran_s + (now - started_at).total_seconds() > limit_s:
            stop_attempt_of(Job.objects.get(pk=job), Attempt.StopReason.TIMEOUT, note=f"the limit is {limit_s} s")


def _stop_attempts_on_draining_nodes() -> None:
    draining = dict(Node.objects.filter(state=Node.State.DRAINING).values_list("name", "reason"))
    if not draining:
        return
    live: Iterable[Attempt] = Attempt.objects.live().exclude(state=State.STOPPING).select_related("job")
    for attempt in live:
        node = next((name for name in attempt.nodes if name in draining), None)
        if node:
            stop_attempt_of(attempt.job, Attempt.StopReason.DRAIN, note=f"{node}: {draining[node]}")
