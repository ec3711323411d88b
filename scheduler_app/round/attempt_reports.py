"""Store reports on attempts in bulk: progress, starts, ends, and the proof that all their processes have ended."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol
from uuid import UUID

from django.db.models import Q
from django.db.models.functions import Coalesce, Greatest

from cluster_app.engine_reports import note_missing_storage
from cluster_app.gpu_faults import note_failed_hooks
from database.bulk_update import rewrite
from engines.progress import checked
from engines.protocol import AttemptReport, EngineError, Phase, Progress, SiteReason, StopReason
from jobs_app.lifecycle.attempt_endings import AttemptEnd, end_attempts
from jobs_app.lifecycle.attempts import (
    StopOrder,
    about_attempt,
    lock_jobs,
    note_running,
    record_process_exit_proof,
    stop_attempts,
)
from jobs_app.measurement.progress_reports import ProgressDelta, note_progress, record_unreadable_lines
from jobs_app.models import Attempt, GpuClaim, Job, Reason
from scheduler_app.round.lease import Fence
from scheduler_app.round.set_aside import Kind, isolate, set_aside, set_aside_at

log = logging.getLogger(__name__)
State = Attempt.State
GOING_ON = (Phase.LAUNCHING, Phase.RUNNING)
BY_SITE = (SiteReason.CANCELLED, SiteReason.PREEMPTED, SiteReason.TIME_LIMIT)
"""Ends that are not the job's failure; that of a failed node is reported as lost."""
WITHDRAW_AFTER = timedelta(seconds=60)
"""Time in the site's queue after which an attempt is withdrawn and its job placed anew: two looks of a backfill."""
REPORTS_PER_TRANSACTION, ENDS_PER_TRANSACTION = 5000, 500
"""Attempts of one transaction: one each would wait for the disk a thousand times after an outage."""


class StoredAttempt(NamedTuple):
    """The stored columns that a report is compared with; attempts without news are read no further."""

    pk: int
    job_id: UUID
    state: str
    started_at: datetime | None
    stop_requested_at: datetime | None
    reports: int
    invalid_lines: int
    peak_memory_mib: int
    site_job: str
    code_s: float | None
    setup_s: float | None
    lacks_devices: bool
    """The site has not told yet which GPUs it gave."""


StoredAttempts = Mapping[int, StoredAttempt]


class RunsAttempts(Protocol):
    """An engine, or several that are asked together."""

    def poll(self, attempts: Iterable[int]) -> list[AttemptReport]: ...

    def stop(self, attempt: int, *, reason: StopReason, grace: timedelta) -> None: ...


def hear_attempts(fence: Fence, engine_names: Collection[str], engine: RunsAttempts, now: datetime) -> None:
    """Poll these engines for all attempts that may still have processes, and store what is new."""
    aside = set_aside_at(Kind.ATTEMPT, now)
    known = _known(engine_names, aside)
    news: dict[int, AttemptReport] = {}
    poison = isolate(list(known), lambda part: news.update(_news(engine, known, part)))
    over = _asked_again([r for r in news.values() if _is_over(known[r.attempt], r)], engine, known)

    def going_on(part: Sequence[int]) -> None:
        with fence.transaction():
            _store_going_on([news[attempt] for attempt in part], known, now)

    def ended(part: Sequence[int]) -> None:
        with fence.transaction():
            _store_over([over[attempt] for attempt in part], known, now)

    def in_order_of_jobs(attempt: int) -> UUID:  # in which rows are locked everywhere
        return known[attempt].job_id

    poison |= _in_parts(sorted(news, key=in_order_of_jobs), REPORTS_PER_TRANSACTION, going_on)
    poison |= _in_parts(sorted(over, key=in_order_of_jobs), ENDS_PER_TRANSACTION, ended)
    _kill_left_over(fence, over.values(), known, engine)
    _note_poison(fence, poison, now)


def _known(engine_names: Collection[str], aside: Collection[str]) -> dict[int, StoredAttempt]:
    with_processes = Attempt.objects.with_processes().filter(engine__in=engine_names).exclude(state=State.CLAIMED)
    of_these = with_processes.exclude(pk__in=[int(key) for key in aside]) if aside else with_processes
    rows = of_these.annotate(lacks_devices=Q(devices={})).order_by().values_list(*StoredAttempt._fields)
    return {row[0]: StoredAttempt._make(row) for row in rows}


def _news(engine: RunsAttempts, known: StoredAttempts, attempts: Sequence[int]) -> dict[int, AttemptReport]:
    reports = engine.poll(attempts)
    return {report.attempt: report for report in reports if _is_news(known[report.attempt], report)}


def _in_parts(attempts: Sequence[int], most: int, act: Callable[[Sequence[int]], None]) -> dict[int, Exception]:
    parts = (attempts[start : start + most] for start in range(0, len(attempts), most))
    return {attempt: error for part in parts for attempt, error in isolate(part, act).items()}


def _note_poison(fence: Fence, poison: Mapping[int, Exception], now: datetime) -> None:
    if poison:
        with fence.transaction():
            set_aside(Kind.ATTEMPT, {str(attempt): error for attempt, error in poison.items()}, now)


def _is_over(known: StoredAttempt, report: AttemptReport) -> bool:
    return report.phase not in GOING_ON or known.state == State.ENDED


def _is_news(known: StoredAttempt, report: AttemptReport) -> bool:
    as_before = report.phase in GOING_ON and known.state != State.ENDED and not _has_reported(known, report)
    told_by_site = bool(report.reason) or (bool(report.devices) and known.lacks_devices)
    started = _has_begun(known, report) or _has_times(known, report)
    return not as_before or told_by_site or started or _is_elsewhere(known, report)


def _has_reported(known: StoredAttempt, report: AttemptReport) -> bool:
    reports = report.progress.reports if report.progress else 0
    more_memory = report.peak_memory_mib > known.peak_memory_mib
    return reports > known.reports or report.invalid_lines > known.invalid_lines or more_memory


def _is_elsewhere(known: StoredAttempt, report: AttemptReport) -> bool:
    """Whether the attempt's number in the site's own queue is new or another one."""
    return report.site_job not in ("", known.site_job)


def _has_times(known: StoredAttempt, report: AttemptReport) -> bool:
    """Whether it tells of a part of the start how long that took, which is told once."""
    code, setup = known.code_s is None and report.code_s is not None, known.setup_s is None
    return code or (setup and report.setup_s is not None)


def _has_begun(known: StoredAttempt, report: AttemptReport) -> bool:
    """Whether the report is the first of a start; also true of one that has ended already, unless it never began."""
    began = report.phase == Phase.RUNNING or (report.phase == Phase.ENDED and report.started_at is not None)
    return began and known.state != State.ENDED and known.started_at is None


def _asked_again(
    over: Sequence[AttemptReport], engine: RunsAttempts, known: StoredAttempts
) -> dict[int, AttemptReport]:
    """The reports by attempt; a running attempt that is reported as unknown is polled again before it is ended."""
    doubtful = [r.attempt for r in over if r.phase is Phase.UNKNOWN and known[r.attempt].started_at is not None]
    confirmed = {r.attempt for r in engine.poll(doubtful) if r.phase is Phase.UNKNOWN} if doubtful else set()
    return {report.attempt: report for report in over if report.attempt not in {*doubtful} - confirmed}


def _store_going_on(reports: Sequence[AttemptReport], known: StoredAttempts, now: datetime) -> None:
    """Store progress, starts, devices, and why the site has not started an attempt."""
    note_progress([_advance(report, checked(report.progress)) for report in reports if report.progress])
    record_unreadable_lines(
        {r.attempt: r.invalid_lines for r in reports if r.invalid_lines > known[r.attempt].invalid_lines}
    )
    note_running({r.attempt: r.started_at or now for r in reports if _has_begun(known[r.attempt], r)})
    _store_memory(reports, known)
    times = {r.attempt: (r.code_s, r.setup_s) for r in reports if _has_times(known[r.attempt], r)}
    rewrite(Attempt, ("code_s", "setup_s"), times)
    _store_site_jobs(reports, known)
    _store_devices({r.attempt: r.devices for r in reports if r.devices and known[r.attempt].lacks_devices})
    _withdraw_waiting([r for r in reports if r.reason and r.phase == Phase.LAUNCHING], now)


def _advance(report: AttemptReport, progress: Progress) -> ProgressDelta:
    return ProgressDelta(
        attempt=report.attempt,
        reports=progress.reports,
        first_step=progress.first_step,
        first_at=progress.first_at,
        step=progress.step,
        at=progress.at,
        loss=progress.loss,
        batch_size=progress.batch_size,
        total_steps=progress.total_steps,
        grad_sqr=progress.grad_sqr,
        grad_var=progress.grad_var,
        checkpoint_s=progress.checkpoint_s,
        checkpoint_at=progress.checkpoint_at,
        checkpoint_step=progress.checkpoint_step,
        restore_s=progress.restore_s,
        restored_at=progress.restored_at,
        metrics={name: (one.step, one.value) for name, one in progress.metrics.items()},
        links=dict(progress.links),
        milestones=progress.milestones,
    )


def _store_memory(reports: Iterable[AttemptReport], known: StoredAttempts) -> None:
    """Store the most memory that attempts have held, where it has grown."""
    more = {r.attempt: (r.peak_memory_mib,) for r in reports if r.peak_memory_mib > known[r.attempt].peak_memory_mib}
    rewrite(Attempt, ("peak_memory_mib",), more)


def _store_site_jobs(reports: Iterable[AttemptReport], known: StoredAttempts) -> None:
    """Store the numbers under which people find the attempts in the site's own queue."""
    found = {r.attempt: (r.site_job,) for r in reports if _is_elsewhere(known[r.attempt], r)}
    rewrite(Attempt, ("site_job",), found)


def _store_devices(devices: Mapping[int, Mapping[str, str]]) -> None:
    """Store the physical GPUs that the site chose."""
    rewrite(Attempt, ("devices",), {attempt: (dict(chosen),) for attempt, chosen in devices.items()})


def _withdraw_waiting(reports: Iterable[AttemptReport], now: datetime) -> None:
    """Store why the site has not started an attempt, and after a while requeue its job."""
    words = {report.attempt: report.message[:500] for report in reports}
    if not words:
        return
    waiting = list(Attempt.objects.filter(pk__in=words, state=State.LAUNCHING).order_by("job"))
    lock_jobs([attempt.job_id for attempt in waiting])
    said = {attempt.job_id: words[attempt.pk] for attempt in waiting}
    starting = Job.objects.filter(pk__in=said, state=Job.State.STARTING).values_list("pk", "reason", "message")
    new = [job for job, reason, message in starting if (reason, message) != (Reason.SITE_QUEUE, said[job])]
    rewrite(Job, ("reason", "message"), {job: (Reason.SITE_QUEUE, said[job]) for job in new})
    late = [one for one in waiting if one.launched_at and now - one.launched_at > WITHDRAW_AFTER]
    for attempt in late:
        with about_attempt(attempt):
            log.warning("the site has not started the attempt: %s", words[attempt.pk])
    if late:
        stop_attempts({one.job_id: StopOrder(Attempt.StopReason.WITHDRAW, words[one.pk]) for one in late})


def _store_over(reports: Sequence[AttemptReport], known: StoredAttempts, now: datetime) -> None:
    """Store the ends of attempts, and release the GPUs that they no longer use."""
    _release_what_is_free([report for report in reports if report.silent_nodes or report.busy_gpus], now)
    late = [r.attempt for r in reports if known[r.attempt].state == State.ENDED and r.proven_gone]
    record_process_exit_proof(late, at=now)
    _launch_again([r.attempt for r in reports if _was_not_launched(known[r.attempt], r)])
    _note_missing_storage(reports, now)
    _store_site_jobs(reports, known)
    standing = dict(Attempt.objects.filter(pk__in=[r.attempt for r in reports]).values_list("pk", "state"))
    ends = {
        r.attempt: _end_of(known[r.attempt], r, now)
        for r in reports
        if _has_ended(known[r.attempt], r, standing[r.attempt])
    }
    for ended in end_attempts(ends):
        with about_attempt(ended.attempt):
            log.info("the attempt ended: %s; its job is %s", ended.verdict.outcome.label, ended.verdict.state.label)
    # With the end alone: reports of it are repeated until its GPUs are free, and one may have been returned meanwhile.
    note_failed_hooks({gpu: fault for r in reports if r.attempt in ends for gpu, fault in r.faulty_gpus.items()})


def _was_not_launched(known: StoredAttempt, report: AttemptReport) -> bool:
    return report.phase is Phase.UNKNOWN and known.state == State.LAUNCHING


def _has_ended(known: StoredAttempt, report: AttemptReport, state_now: str) -> bool:
    """Whether the report ends the attempt; "unknown" does so only in the state in which the engine was asked for it."""
    if report.phase in GOING_ON or known.state == State.ENDED:
        return False
    if report.phase is not Phase.UNKNOWN:
        return True
    if known.state == State.STOPPING and known.stop_requested_at is None:
        return False  # a launch in flight could still start it until the engine has the stop command
    return known.state == state_now != State.LAUNCHING


def _launch_again(attempts: Sequence[int]) -> None:
    Attempt.objects.filter(pk__in=attempts, state=State.LAUNCHING, started_at=None).update(launched_at=None)


def _end_of(known: StoredAttempt, report: AttemptReport, now: datetime) -> AttemptEnd:
    """End of the attempt; one that the engine does not know was stopped before it began, unless it had started."""
    unknown = report.phase is Phase.UNKNOWN
    return AttemptEnd(
        ended_at=report.ended_at or now,
        exit_code=report.exit_code,
        lost=report.phase is Phase.LOST or (unknown and known.started_at is not None),
        gone=report.proven_gone,
        by_site=report.reason in BY_SITE,
        no_storage=report.reason == SiteReason.STORAGE_MISSING,
        node_fault=report.reason is SiteReason.GPU_FAULT,
        not_ready=report.reason is SiteReason.NOT_READY,
        ran_s=report.ran_s,
        message=report.message,
    )


def _note_missing_storage(reports: Iterable[AttemptReport], now: datetime) -> None:
    for report in reports:
        for node, storage in report.missing_storage.items():
            note_missing_storage(storage, node, now)


def _release_what_is_free(reports: Iterable[AttemptReport], now: datetime) -> None:
    """Release the GPUs of ended attempts but those of silent nodes and busy ones: a dead GPU keeps no other."""
    by_attempt = {report.attempt: report for report in reports}
    if not by_attempt:
        return
    claims = GpuClaim.objects.open().filter(attempt__in=by_attempt)
    free = [
        claim
        for claim, attempt, node, uuid in claims.values_list("pk", "attempt", "gpu__node__name", "gpu__uuid")
        if node not in by_attempt[attempt].silent_nodes and uuid not in by_attempt[attempt].busy_gpus
    ]
    if free:
        still = GpuClaim.objects.open().filter(pk__in=free)
        still.update(released_at=Greatest(now, Coalesce("held_from", now)))


def _kill_left_over(fence: Fence, over: Iterable[AttemptReport], known: StoredAttempts, engine: RunsAttempts) -> None:
    """Kill what is left of attempts that were declared lost."""
    left = [r.attempt for r in over if known[r.attempt].state == State.ENDED and not r.proven_gone]
    for attempt in left:
        fence.check()
        try:
            engine.stop(attempt, reason=StopReason.CANCEL, grace=timedelta(0))
        except EngineError:  # retried at the next turn; other attempts are processed meanwhile
            log.exception("attempt %s could not be told to stop", attempt)
