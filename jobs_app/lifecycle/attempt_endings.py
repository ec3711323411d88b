"""Ends of attempts, in bulk: outcome, accounted usage, and the next state of the job."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db import transaction

from database.bulk_insert import insert_many
from database.bulk_update import rewrite
from jobs_app.errors import JobsError
from jobs_app.lifecycle.attempt_outcome import Ending, Verdict, judge
from jobs_app.measurement.counters import Count, tally
from jobs_app.models import Attempt, Job, JobEvent, Metric, Reason
from jobs_app.models.attempt import STOPPED
from jobs_app.models.job import held_text
from jobs_app.notifications.outbox import announce_ends

State = Attempt.State
Kind = JobEvent.Kind

OF_JOB = (
    *("id", "name", "array_index", "state", "reason", "message", "reasons", "held", "hold_next", "exit_code"),
    *("finished_at", "queued_at", "eligible_at", "failures", "retries", "requeues", "losses"),
    *("ran_s", "attained_gpu_s", "work_lost_gpu_s"),
)
OF_ATTEMPT = (
    *("id", "job_id", "number", "state", "stop_reason", "stop_note", "started_at", "step_at", "gpu_count"),
    *("nodes", "round_number", "checkpoint_at"),
)
JOB_COLUMNS = tuple(name for name in OF_JOB if name not in {"id", "name", "array_index", "retries"})
"""The columns that the end of an attempt may change."""
ATTEMPT_COLUMNS = ("state", "outcome", "exit_code", "message", "ended_at", "gone_at", "work_lost_gpu_s")


class AttemptIsNotLive(JobsError):
    """The attempt has ended already: another process was first."""

    code = "attempt_is_not_live"


class AttemptEnd(NamedTuple):
    """How an attempt ended, as reported by its engine."""

    ended_at: datetime
    exit_code: int | None = None
    lost: bool = False
    gone: bool = False
    """It is proven that no process is left; an attempt that still waits for its GPUs has none."""
    by_site: bool = False
    """The cluster's own scheduler ended it: not the job's failure."""
    no_storage: bool = False
    """A node lacked its storage: not the job's failure."""
    node_fault: bool = False
    """The node could not start it: not the job's failure."""
    not_ready: bool = False
    """A server of its gang was not ready: not the job's failure, unless it happens too often."""
    ran_s: float | None = None
    """How long its processes ran, by a clock that nobody sets; None: from its start to its end."""
    message: str = ""


@dataclass(frozen=True)
class Ended:
    """An attempt that ends, with what of its job is decided under lock."""

    attempt: Attempt
    job: Job
    end: AttemptEnd
    verdict: Verdict
    decides: bool
    """Whether its job moves on with it: not if this was a withdrawn successor of an attempt at an engine."""
    successor: Attempt | None
    """The attempt of the job that waits for its GPUs."""
    goes_on: bool
    """Whether the job's successor starts next."""

    @property
    def gone_at(self) -> datetime | None:
        return self.end.ended_at if self.end.gone or self.attempt.state == State.CLAIMED else None

    @property
    def ran_s(self) -> float:
        return _ran_s(self.attempt, self.end)

    @property
    def lost_gpu_s(self) -> float:
        if self.verdict.state == Job.State.SUCCEEDED:
            return 0.0
        return work_lost_gpu_s(self.attempt, self.end.ended_at, lost=self.end.lost)

    @property
    def text(self) -> str:
        parts = (self.attempt.stop_note, self.verdict.message, self.end.message, self._pause)
        return "; ".join(part.rstrip(".") for part in parts if part)[:500]

    @property
    def eligible_at(self) -> datetime | None:
        pause_s = self.verdict.pause_s
        return self.end.ended_at + timedelta(seconds=pause_s) if pause_s else None

    @property
    def _pause(self) -> str:
        return f"it may start again at {self.eligible_at:%F %T} UTC" if self.eligible_at else ""

    @property
    def is_final(self) -> bool:
        return self.decides and self.verdict.state in Job.FINAL


def end_attempt(attempt: Attempt, end: AttemptEnd) -> Verdict:
    """End the attempt and move its job to the next state, once; raise `AttemptIsNotLive` if it has ended already."""
    ended = end_attempts({attempt.pk: end})
    if not ended:
        raise AttemptIsNotLive(str(attempt))
    return ended[0].verdict


@transaction.atomic
def end_attempts(ends: Mapping[int, AttemptEnd]) -> list[Ended]:
    """End these attempts and move their jobs to the next states, once; those that have ended already are left out.

    The verdicts are reached under lock from the present rows, so that a cancel that has just been committed counts.
    Of two attempts of one job the later one ends after the other.
    """
    live = _locked_live_attempts(ends)
    due = [mine for of_job in live.values() if (mine := [attempt for attempt in of_job if attempt.pk in ends])]
    ended = [_ended(mine[0], live[mine[0].job_id], ends[mine[0].pk]) for mine in due]
    _write_attempts(ended)
    _write_jobs(ended)
    _write_events(ended)
    _tally(ended)
    announce_ends(one.job.pk for one in ended if one.is_final)
    later = {attempt.pk: ends[attempt.pk] for mine in due for attempt in mine[1:]}
    return ended + (end_attempts(later) if later else [])


def work_lost_gpu_s(attempt: Attempt, ended_at: datetime, *, lost: bool = False) -> float:
    """Lost work in GPU-seconds: the time since the last progress report, which a graceful stop makes short.

    With a node that is lost goes all since the last checkpoint, if the job reports its checkpoints.
    """
    since = (attempt.checkpoint_at if lost else None) or attempt.step_at or attempt.started_at
    return max(0.0, (ended_at - since).total_seconds()) * attempt.gpu_count if since else 0.0


def _locked_live_attempts(attempts: Iterable[int]) -> dict[UUID, list[Attempt]]:
    """Lock the jobs of these attempts, then all live attempts of each (always in this order), and return those."""
    ids = set(Attempt.objects.live().filter(pk__in=list(attempts)).values_list("job", flat=True))
    locked = Job.objects.select_for_update().filter(pk__in=ids).order_by("pk").only(*OF_JOB)
    jobs = {job.pk: job for job in locked}
    live = Attempt.objects.live().select_for_update().filter(job__in=ids).order_by("pk").only(*OF_ATTEMPT)
    found: dict[UUID, list[Attempt]] = defaultdict(list)
    for attempt in live:
        attempt.job = jobs[attempt.job_id]
        found[attempt.job_id].append(attempt)
    return found


def _ended(attempt: Attempt, live: Sequence[Attempt], end: AttemptEnd) -> Ended:
    others, verdict, job = (
        [other for other in live if other.pk != attempt.pk],
        judge(_ending_of(attempt, end)),
        attempt.job,
    )
    at_engine = any(other.state in Attempt.AT_ENGINE for other in others)
    successor = next((other for other in others if other.state == State.CLAIMED), None)
    return Ended(
        attempt=attempt,
        job=job,
        end=end,
        verdict=verdict,
        decides=not at_engine and job.state in Job.ACTIVE,
        successor=successor,
        goes_on=verdict.state == Job.State.QUEUED and successor is not None and not job.hold_next,
    )


def _ran_s(attempt: Attempt, end: AttemptEnd) -> float:
    if attempt.started_at is None or end.ran_s is not None:
        return end.ran_s or 0.0
    return max(0.0, (end.ended_at - attempt.started_at).total_seconds())


def _ending_of(attempt: Attempt, end: AttemptEnd) -> Ending:
    """Input of the verdict: how the attempt ended, and the counters of its job."""
    job = attempt.job
    return Ending(
        exit_code=end.exit_code,
        stop_reason=attempt.stop_reason,
        lost=end.lost,
        by_site=end.by_site,
        no_storage=end.no_storage,
        node_fault=end.node_fault,
        not_ready=end.not_ready,
        ran_s=_ran_s(attempt, end),
        failures=job.failures,
        retries=job.retries,
        requeues=job.requeues,
        losses=job.losses,
    )


def _write_attempts(ended: Iterable[Ended]) -> None:
    """End the attempts, and the successors that will not run, because their job has ended or is held."""
    rows: dict[int, Sequence[Any]] = {}
    for one in ended:
        end = one.end
        outcome, message = one.verdict.outcome, end.message[:500]
        rows[one.attempt.pk] = (State.ENDED, outcome, end.exit_code, message, end.ended_at, one.gone_at, one.lost_gpu_s)
        if one.decides and one.successor and not one.goes_on:
            cancelled = Attempt.Outcome.CANCELLED
            rows[one.successor.pk] = (State.ENDED, cancelled, None, "", end.ended_at, end.ended_at, 0.0)
    rewrite(Attempt, ATTEMPT_COLUMNS, rows)


def _write_jobs(ended: Iterable[Ended]) -> None:
    for one in ended:
        _account(one)
        if one.decides:
            _move_on(one)
    rewrite(Job, JOB_COLUMNS, {one.job.pk: [getattr(one.job, name) for name in JOB_COLUMNS] for one in ended})


def _account(one: Ended) -> None:
    """Add what the attempt used to its job, in memory."""
    one.job.ran_s += one.ran_s
    one.job.attained_gpu_s += one.ran_s * one.attempt.gpu_count
    one.job.work_lost_gpu_s += one.lost_gpu_s


def _move_on(one: Ended) -> None:
    """Give the job its next state, in memory."""
    job, verdict = one.job, one.verdict
    job.failures, job.requeues, job.losses = verdict.failures, verdict.requeues, verdict.losses
    job.message, job.reasons, job.eligible_at = one.text, [], one.eligible_at
    if one.goes_on:
        job.state, job.reason = Job.State.STARTING, Reason.AWAITING_RELEASE
        return
    final = verdict.state in Job.FINAL
    job.held = job.hold_next and not final
    job.state, job.hold_next = verdict.state, False
    job.reason = Reason.HELD if job.held else verdict.reason or ""
    if job.held:
        job.message = held_text(str(job), one.text.removeprefix("held").strip() if one.text.startswith("held") else "")
    job.exit_code = one.end.exit_code if final else None
    job.finished_at = one.end.ended_at if final else None
    job.queued_at = job.queued_at if final else one.end.ended_at


def _write_events(ended: Iterable[Ended]) -> None:
    events = [
        {
            "job_id": one.job.pk,
            "kind": Kind.FINISHED if one.is_final else Kind.REQUEUED,
            "message": ": ".join(part for part in (one.verdict.outcome.label, one.text) if part)[:500],
            "attempt": one.attempt.number,
        }
        for one in ended
        if one.decides
    ]
    insert_many(JobEvent, events)


def _tally(ended: Iterable[Ended]) -> None:
    tally(*(count for one in ended for count in _counts_of(one)))


def _counts_of(one: Ended) -> Iterable[Count]:
    attempt = one.attempt
    if one.verdict.outcome in STOPPED and attempt.started_at and attempt.stop_reason:
        yield Count(Metric.PREEMPTIONS, attempt.stop_reason)
        yield Count(Metric.PREEMPTED_WORK, value=one.lost_gpu_s)
    if one.is_final:
        yield Count(Metric.JOBS_FINISHED, one.verdict.state)
