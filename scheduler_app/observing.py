"""What the engines report becomes rows: attempts run, progress and end; GPUs that are proven free are released."""

import logging
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta

from django.db.models.functions import Coalesce, Greatest

from cluster_app.models import Node
from cluster_app.services import hear_from, judge_silence, note_gpu_health
from engines.protocol import AttemptReport, Engine, EngineError, Phase, StopReason
from jobs_app.attempts import AttemptIsNotLive, end_attempt, note_gone, note_running, stop_attempt_of
from jobs_app.measuring import Advance, note_progress
from jobs_app.models import Attempt
from jobs_app.services import settle_dependencies
from scheduler_app.fleet import engines
from scheduler_app.models import GpuClaim, SchedulerLease

log = logging.getLogger(__name__)
State = Attempt.State


def observe(now: datetime) -> None:
    """Listen to every engine, then draw the conclusions that need no decision."""
    for name, engine in engines().items():
        nodes = engine.nodes()
        hear_from([node.name for node in nodes], now=now)
        for node in nodes:
            note_gpu_health(node.name, {gpu.uuid: gpu.healthy for gpu in node.gpus if gpu.uuid})
        _take_reports(name, engine, now)
    judge_silence(now, listening_since=SchedulerLease.objects.get().listening_since)
    _give_up_on_lost_nodes(now)
    _stop_at_time_limit(now)
    _empty_draining_nodes()
    settle_dependencies()
    release_claims(now)


def release_claims(now: datetime) -> None:
    """GPUs of attempts that are proven gone are free."""
    free = GpuClaim.objects.open().filter(attempt__gone_at__isnull=False)
    free.update(released_at=Greatest(now, Coalesce("held_from", now)))  # not before they were held, if a clock was set


def _take_reports(engine_name: str, engine: Engine, now: datetime) -> None:
    known = Attempt.objects.ungone().filter(engine=engine_name).exclude(state=State.CLAIMED)
    attempts = {attempt.pk: attempt for attempt in known.select_related("job__team", "gpu_type")}
    reports = engine.poll(attempts)
    note_progress(filter(None, (_advance(attempts[report.attempt], report) for report in reports)))
    for report in reports:
        try:
            _take(attempts[report.attempt], report, engine, now)
        except AttemptIsNotLive:
            log.info("attempt %s had ended already", report.attempt)
        except EngineError:  # said again with the next look; the others are heard meanwhile
            log.exception("attempt %s could not be told to stop", report.attempt)


def _take(attempt: Attempt, report: AttemptReport, engine: Engine, now: datetime) -> None:
    if attempt.state == State.ENDED:
        return _take_late(attempt, report, engine, now)
    match report.phase:
        case Phase.RUNNING:
            note_running(attempt, started_at=report.started_at or now)
        case Phase.ENDED:
            if report.started_at:  # else it was stopped before it began
                note_running(attempt, started_at=report.started_at)
            _end(attempt, report, now)
        case Phase.LOST:
            _end(attempt, report, now, lost=True)
        case Phase.UNKNOWN if attempt.state == State.LAUNCHING:
            Attempt.objects.filter(pk=attempt.pk, state=State.LAUNCHING).update(launched_at=None)
        case Phase.UNKNOWN if attempt.state == State.STOPPING and not attempt.stop_told_at:
            pass  # until the engine has been told, a launch that is still on its way could begin it
        case Phase.UNKNOWN:  # what was stopped before it began has lost nothing
            _end(attempt, report, now, lost=attempt.started_at is not None)
    return None


def _take_late(attempt: Attempt, report: AttemptReport, engine: Engine, now: datetime) -> None:
    """A report on an attempt that was given up: what is left of it is killed, and its GPUs come free."""
    if report.proven_gone:
        note_gone(attempt, at=now)
    else:
        engine.stop(attempt.pk, reason=StopReason.CANCEL, grace=timedelta(0))


def _end(attempt: Attempt, report: AttemptReport, now: datetime, *, lost: bool = False) -> None:
    end_attempt(
        attempt,
        ended_at=report.ended_at or now,
        exit_code=report.exit_code,
        lost=lost,
        gone=report.proven_gone,
        message=report.message,
    )


def _advance(attempt: Attempt, report: AttemptReport) -> Advance | None:
    progress = report.progress
    if progress is None or progress.reports <= attempt.reports:
        return None
    return Advance(
        attempt=attempt,
        reports=progress.reports,
        first_step=progress.first_step,
        first_at=progress.first_at,
        step=progress.step,
        at=progress.at,
        loss=progress.loss,
    )


def _give_up_on_lost_nodes(now: datetime) -> None:
    """Their jobs are requeued; their GPUs stay claimed until the node is back and says that nothing runs."""
    lost = set(Node.objects.filter(health=Node.Health.LOST).values_list("name", flat=True))
    if not lost:
        return
    for attempt in Attempt.objects.live():
        silent = lost & set(attempt.nodes)
        if silent:
            message = f"nothing was heard from {', '.join(sorted(silent))}"
            with suppress(AttemptIsNotLive):  # the end of its predecessor, or a person, was first
                end_attempt(attempt, lost=True, ended_at=now, message=message)


def _stop_at_time_limit(now: datetime) -> None:
    running = Attempt.objects.filter(state=State.RUNNING, job__time_limit_s__isnull=False).select_related("job")
    for attempt in running:
        if attempt.job.ran_s + attempt.ran_s(now) > (attempt.job.time_limit_s or 0):
            note = f"the limit is {attempt.job.time_limit_s} s"
            stop_attempt_of(attempt.job, Attempt.StopReason.TIMEOUT, note=note)


def _empty_draining_nodes() -> None:
    draining = dict(Node.objects.filter(state=Node.State.DRAINING).values_list("name", "reason"))
    if not draining:
        return
    live: Iterable[Attempt] = Attempt.objects.live().exclude(state=State.STOPPING).select_related("job")
    for attempt in live:
        node = next((name for name in attempt.nodes if name in draining), None)
        if node:
            stop_attempt_of(attempt.job, Attempt.StopReason.DRAIN, note=f"{node}: {draining[node]}")
