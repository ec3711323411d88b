"""Reconcile rows with the engines' reports: attempts run, progress and end; GPUs proven free are released."""

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Coalesce, Greatest

from cluster_app.engine_reports import (
    Inventory,
    note_gpu_health,
    note_missing_storage,
    reasons_out_of_service,
    record_answer,
    record_fault,
    record_heartbeats,
    update_node_health,
)
from cluster_app.models import FOREIGN_USE, Node
from cluster_app.models import Engine as EngineRow
from cluster_app.storage import forget_missing_storage
from database.bulk_update import rewrite
from engines.protocol import (
    AttemptReport,
    Engine,
    EngineError,
    NodeReport,
    NodeState,
    Phase,
    Progress,
    SiteReason,
    StopReason,
)
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
from scheduler_app.round.engine_registry import registered_engines

log = logging.getLogger(__name__)
State = Attempt.State
GOING_ON = (Phase.LAUNCHING, Phase.RUNNING)
BACKOFF, LONGEST_BACKOFF = 5, timedelta(seconds=60)
"""An engine that does not answer is left alone for five times as long as it took to find out: others wait meanwhile."""
BY_SITE = (SiteReason.CANCELLED, SiteReason.PREEMPTED, SiteReason.TIME_LIMIT)
"""Ends that are not the job's failure; that of a failed node is reported as lost."""
WITHDRAW_AFTER = timedelta(seconds=60)
"""Time in the site's queue after which an attempt is withdrawn and its job placed anew: two looks of a backfill."""
ENDS_PER_TRANSACTION = 50
"""Ends of attempts in one transaction: one each would wait for the disk a thousand times after an outage."""


def observe(now: datetime) -> None:
    """Store the reports of every engine, then act on what follows from them without a scheduling decision."""
    heard = {row.name: _hear(row, engine, now) for row, engine in registered_engines()}
    update_node_health(
        now,
        listening_since=SchedulerLease.objects.get().listening_since,
        inventories={name: inventory for name, inventory in heard.items() if inventory is not None},
    )
    _end_attempts_on_lost_nodes(now)
    _stop_at_time_limit(now)
    _stop_when_idle(now)
    _stop_attempts_on_draining_nodes()
    settle_dependencies()
    forget_missing_storage(now)
    release_claims(now)


def _hear(row: EngineRow, engine: Engine, now: datetime) -> Inventory | None:
    """Store one engine's reports, or its fault: the others are heard all the same. None: it does not answer."""
    if row.retry_at is not None and now < row.retry_at <= now + LONGEST_BACKOFF:  # else a clock was set back
        return None
    began_s = monotonic()
    try:
        nodes = engine.nodes()
        _store_nodes(row.name, nodes, now)
        _store_reports(row.name, engine, now)
        refusals = engine.sync_drains(reasons_out_of_service(row.name))
    except EngineError as error:
        if str(error)[:500] != row.fault:
            log.warning("the engine %s does not answer: %s", row.name, error)
        backoff = min(BACKOFF * timedelta(seconds=monotonic() - began_s), LONGEST_BACKOFF)
        record_fault(row, str(error), now=now, retry_at=now + backoff)
        return None
    if row.fault:
        log.info("the engine %s answers again", row.name)
    inventory = inventory_of(nodes, refusals)
    record_answer(row, inventory, now=now)
    return inventory


def _store_nodes(engine: str, nodes: Iterable[NodeReport], now: datetime) -> None:
    alive = [node.name for node in nodes if node.state != NodeState.SILENT]
    record_heartbeats(engine, alive, now=now)
    for node in nodes:
        note_gpu_health(node.name, {gpu.uuid: gpu.healthy for gpu in node.gpus if gpu.uuid})


def inventory_of(nodes: Iterable[NodeReport], refusals: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The hardware that an engine reports, by node, and the drains that its site refuses; of declared nodes none."""
    return {
        node.name: {
            "gpu_type": node.gpu_type,
            "gpus": len(node.gpus),
            "gpu_memory_mib": min((gpu.memory_mib for gpu in node.gpus if gpu.memory_mib), default=0),
            "uuids": [gpu.uuid for gpu in node.gpus if gpu.uuid],
            "cpus": node.cpus,
            "memory_mib": node.memory_mib,
            "state": str(node.state),
            "reason": node.reason,
            **{name: getattr(node, name) for name in FOREIGN_USE},
            "refusal": refusals.get(node.name, ""),
        }
        for node in nodes
        if node.gpus or node.cpus
    }


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
    _store_devices({r.attempt: r.devices for r in reports if r.devices and not known[r.attempt].devices})
    _withdraw_waiting([r for r in reports if r.reason and r.phase == Phase.LAUNCHING], now)
    over = [r for r in reports if r.phase not in GOING_ON or known[r.attempt].state == State.ENDED]
    _release_other_nodes([report for report in over if report.silent_nodes], now)
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
    devices: dict[str, str]


def _is_news(known: StoredAttempt, report: AttemptReport) -> bool:
    as_before = report.phase in GOING_ON and known.state != State.ENDED and not _has_reported(known, report)
    told_by_site = bool(report.reason) or (bool(report.devices) and not known.devices)
    return not as_before or told_by_site or _has_begun(known, report)


def _has_reported(known: StoredAttempt, report: AttemptReport) -> bool:
    reports = report.progress.reports if report.progress else 0
    return reports > known.reports or report.invalid_lines > known.invalid_lines


def _has_begun(known: StoredAttempt, report: AttemptReport) -> bool:
    """Whether the report is the first of a start; also true of one that has ended already, unless it never began."""
    began = report.phase == Phase.RUNNING or (report.phase == Phase.ENDED and report.started_at is not None)
    return began and known.state != State.ENDED and known.started_at is None


def _store_devices(devices: Mapping[int, Mapping[str, str]]) -> None:
    """Store the physical GPUs that the site chose."""
    rewrite(Attempt, ("devices",), {attempt: (dict(chosen),) for attempt, chosen in devices.items()})


def _withdraw_waiting(reports: Iterable[AttemptReport], now: datetime) -> None:
    """Say why the site has not started an attempt, and after a while put its job back into the queue."""
    for report in reports:
        waiting = Attempt.objects.filter(pk=report.attempt, state=State.LAUNCHING).select_related("job")
        for attempt in waiting:
            Job.objects.filter(pk=attempt.job_id, state=Job.State.STARTING).update(message=report.message[:500])
            if attempt.launched_at and now - attempt.launched_at > WITHDRAW_AFTER:
                with about_attempt(attempt):
                    log.warning("the site has not started the attempt: %s", report.message)
                    stop_attempt_of(attempt.job, Attempt.StopReason.WITHDRAW, note=report.message[:500])


def _release_other_nodes(reports: Iterable[AttemptReport], now: datetime) -> None:
    """Release the GPUs of attempts that have ended on all nodes but silent ones, which alone keep theirs."""
    for report in reports:
        free = GpuClaim.objects.open().filter(attempt=report.attempt).exclude(gpu__node__name__in=report.silent_nodes)
        free.update(released_at=Greatest(now, Coalesce("held_from", now)))


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
    for node, storage in report.missing_storage.items():
        note_missing_storage(storage, node, now)
    verdict = end_attempt(
        attempt,
        ended_at=report.ended_at or now,
        exit_code=report.exit_code,
        lost=lost,
        gone=report.proven_gone,
        by_site=report.reason in BY_SITE,
        no_storage=report.reason == SiteReason.STORAGE_MISSING,
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


def _stop_when_idle(now: datetime) -> None:
    """Stop jobs whose sessions have not been in use for their idle limit."""
    running = Attempt.objects.filter(state=State.RUNNING, job__idle_limit_s__isnull=False)
    rows = running.values_list("job", Coalesce("session_at", "started_at"), "job__idle_limit_s")
    for job, used_at, limit_s in rows:
        if now - used_at >= timedelta(seconds=limit_s):
            note = f"no session was in use for {limit_s} s"
            stop_attempt_of(Job.objects.get(pk=job), Attempt.StopReason.TIMEOUT, note=note)


def _stop_attempts_on_draining_nodes() -> None:
    draining = dict(Node.objects.filter(state=Node.State.DRAINING).values_list("name", "reason"))
    if not draining:
        return
    live: Iterable[Attempt] = Attempt.objects.live().exclude(state=State.STOPPING).select_related("job")
    for attempt in live:
        node = next((name for name in attempt.nodes if name in draining), None)
        if node:
            stop_attempt_of(attempt.job, Attempt.StopReason.DRAIN, note=f"{node}: {draining[node]}")
