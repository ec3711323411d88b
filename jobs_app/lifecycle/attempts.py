"""Transitions of attempts: started, told to stop, ended, and proven to have no process left."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F
from django.utils import timezone
from structlog.contextvars import bound_contextvars

from database.bulk_update import rewrite
from jobs_app.errors import JobsError
from jobs_app.lifecycle.verdict import Ending, Verdict, judge
from jobs_app.measurement.counters import Count, tally
from jobs_app.models import Attempt, Job, JobEvent, Metric, Reason

State = Attempt.State
Kind = JobEvent.Kind
StopReason = Attempt.StopReason


class AttemptIsNotLive(JobsError):
    """The attempt has ended already: another process was first."""

    code = "attempt_is_not_live"


def record(job: Job, kind: Kind, message: str = "", *, actor: User | None = None, attempt: int | None = None) -> None:
    """Append to the job's history; new events wake the scheduler."""
    JobEvent.objects.create(job=job, kind=kind, message=message[:500], actor=actor, attempt=attempt)


def about_attempt(attempt: Attempt) -> AbstractContextManager[None]:
    """Bind the attempt, its job and its nodes to all log lines within."""
    node = ",".join(attempt.nodes)
    return bound_contextvars(job_id=str(attempt.job_id), attempt=attempt.number, node=node, round=attempt.round_number)


def lock_job(job_id: UUID) -> None:
    """Lock the job, then its live attempts (always in this order), until the transaction ends."""
    list(Job.objects.select_for_update().filter(pk=job_id).values_list("pk"))
    list(Attempt.objects.live().select_for_update().filter(job=job_id).values_list("pk"))


@transaction.atomic
def note_running(started: Mapping[int, datetime]) -> set[int]:
    """Record that the processes of these attempts have started, in bulk; return the attempts for which that is new.

    Of attempts that are stopping already only the time is recorded.
    """
    if not started:
        return set()
    first_start = _locked_jobs_of(started)
    found = Attempt.objects.select_for_update(of=("self",)).filter(pk__in=started, started_at=None)
    fields = ("job_id", "number", "state", "nodes", "gpu_count", "gpu_type__name")
    attempts = list(found.select_related("gpu_type").only(*fields).order_by("pk"))
    begun = [attempt for attempt in attempts if attempt.state == State.LAUNCHING]
    Attempt.objects.filter(pk__in=[attempt.pk for attempt in begun]).update(state=State.RUNNING)
    rewrite(Attempt, ("started_at",), {attempt.pk: (started[attempt.pk],) for attempt in attempts})
    jobs = Job.objects.filter(pk__in=[attempt.job_id for attempt in begun])
    jobs.filter(state=Job.State.STARTING).update(state=Job.State.RUNNING, reason="", message="", reasons=[])
    first = [attempt for attempt in begun if first_start[attempt.job_id] is None]
    rewrite(Job, ("started_at",), {attempt.job_id: (started[attempt.pk],) for attempt in first})
    JobEvent.objects.bulk_create(
        JobEvent(job_id=a.job_id, kind=Kind.STARTED, message=_where(a)[:500], attempt=a.number) for a in begun
    )
    _tally_waits({attempt.job_id: started[attempt.pk] for attempt in begun})
    return {attempt.pk for attempt in begun}


def _tally_waits(started: Mapping[UUID, datetime]) -> None:
    """Add the waiting times of jobs that have started for the first time to the metric."""
    rows = Job.objects.filter(pk__in=started).values_list("pk", "created_at", "started_at")
    waits = [(at - created_at).total_seconds() for pk, created_at, at in rows if at and at == started[pk]]
    tally(*(Count(Metric.JOB_WAIT, value=max(0.0, wait)) for wait in waits))


def _locked_jobs_of(attempts: Iterable[int]) -> dict[UUID, datetime | None]:
    """Lock the jobs, before any attempt as everywhere, and return when each first started."""
    of_these = Attempt.objects.filter(pk__in=attempts).values("job")
    jobs = Job.objects.select_for_update().filter(pk__in=of_these).order_by("pk")
    return dict(jobs.values_list("pk", "started_at"))


def _where(attempt: Attempt) -> str:
    return f"{attempt.gpu_count} x {attempt.gpu_type} on {', '.join(attempt.nodes)}"


def stop_attempt_of(job: Job, reason: StopReason, *, note: str, actor: User | None = None) -> bool:
    """Tell the job's attempt to stop; a cancel overrides an earlier reason. False if there is no live attempt.

    An attempt that still waits for its GPUs has no processes, and ends at once.
    """
    with transaction.atomic():
        lock_job(job.pk)
        told = _tell(job, reason, note)
        waiting = Attempt.objects.filter(job=job, state=State.CLAIMED).first()
        if told:
            Job.objects.filter(pk=job.pk, state__in=Job.ACTIVE).update(state=Job.State.STOPPING, message=note)
            record(job, Kind.STOPPING, f"{reason.label}: {note}" if note else reason.label, actor=actor)
        if waiting:
            withdraw(waiting, reason, note=note)
        return bool(told or waiting) or Attempt.objects.at_engine().filter(job=job).exists()


def preempt(notes: Mapping[int, str]) -> set[int]:
    """Preempt running attempts, given with a note each, in bulk; return those that were told, the others no longer run.

    Call it inside a transaction: it locks the rows that it changes.
    """
    running = Attempt.objects.select_for_update(of=("self",)).filter(pk__in=notes, state=State.RUNNING)
    told = list(running.order_by("pk").values_list("pk", "job", "number"))
    Attempt.objects.filter(pk__in=[pk for pk, _, _ in told]).update(
        state=State.STOPPING, stopping_at=timezone.now(), stop_reason=StopReason.PREEMPT
    )
    rewrite(Attempt, ("stop_note",), {pk: (notes[pk],) for pk, _, _ in told})
    rewrite(Job, ("state", "message"), {job: (Job.State.STOPPING, notes[pk]) for pk, job, _ in told})
    text = f"{StopReason.PREEMPT.label}: "
    events = [
        JobEvent(job_id=job, kind=Kind.STOPPING, message=(text + notes[pk])[:500], attempt=number)
        for pk, job, number in told
    ]
    JobEvent.objects.bulk_create(events)
    return {pk for pk, _, _ in told}


def withdraw(attempt: Attempt, reason: StopReason, *, note: str = "") -> None:
    """End an attempt that was never launched."""
    Attempt.objects.filter(pk=attempt.pk, state=State.CLAIMED).update(stop_reason=reason, stop_note=note)
    end_attempt(attempt, ended_at=timezone.now())


def end_attempt(
    attempt: Attempt,
    *,
    ended_at: datetime,
    exit_code: int | None = None,
    lost: bool = False,
    gone: bool = False,
    by_site: bool = False,
    no_storage: bool = False,
    message: str = "",
) -> Verdict:
    """End the attempt and move its job to the next state, once; raise `AttemptIsNotLive` if it has ended already.

    The verdict is reached under lock from the present rows, so that a cancel that has just been committed counts.
    `gone`: it is proven that no process is left. An attempt that still waits for its GPUs has none. `by_site`: the
    cluster's own scheduler ended it; `no_storage`: a node lacked its storage. Neither is the job's failure.
    """
    with transaction.atomic():
        lock_job(attempt.job_id)
        live = Attempt.objects.live().select_related("job").filter(pk=attempt.pk).first()
        if live is None:
            raise AttemptIsNotLive(str(attempt))
        verdict = judge(_ending_of(live, exit_code=exit_code, lost=lost, by_site=by_site, no_storage=no_storage))
        lost_gpu_s = work_lost_gpu_s(live, ended_at) if verdict.state != Job.State.SUCCEEDED else 0.0
        Attempt.objects.filter(pk=live.pk).update(
            state=State.ENDED,
            outcome=verdict.outcome,
            exit_code=exit_code,
            message=message[:500],
            ended_at=ended_at,
            gone_at=ended_at if gone or live.state == State.CLAIMED else None,
            work_lost_gpu_s=lost_gpu_s,
        )
        _account(live, ended_at, lost_gpu_s)
        if verdict.outcome == Attempt.Outcome.PREEMPTED and live.started_at and live.stop_reason:
            tally(Count(Metric.PREEMPTIONS, live.stop_reason), Count(Metric.PREEMPTED_WORK, value=lost_gpu_s))
        _move_job_on(live, verdict, exit_code=exit_code, at=ended_at, message=message)
    return verdict


def record_process_exit_proof(attempt: Attempt, *, at: datetime) -> None:
    """Record the proof that none of its processes is left; its GPUs may be given to others."""
    Attempt.objects.filter(pk=attempt.pk, gone_at=None).update(gone_at=at)


def work_lost_gpu_s(attempt: Attempt, ended_at: datetime) -> float:
    """Lost work in GPU-seconds: the time since the last progress report, which a graceful stop makes short."""
    since = attempt.step_at or attempt.started_at
    return max(0.0, (ended_at - since).total_seconds()) * attempt.gpu_count if since else 0.0


def _ending_of(attempt: Attempt, *, exit_code: int | None, lost: bool, by_site: bool, no_storage: bool) -> Ending:
    """Input of the verdict: how the attempt ended, and the counters of its job."""
    job = attempt.job
    return Ending(
        exit_code=exit_code,
        stop_reason=attempt.stop_reason,
        lost=lost,
        by_site=by_site,
        no_storage=no_storage,
        failures=job.failures,
        retries=job.retries,
        requeues=job.requeues,
        losses=job.losses,
    )


def _tell(job: Job, reason: StopReason, note: str) -> bool:
    at_engine = Attempt.objects.at_engine().filter(job=job)
    fields = {"stop_reason": reason, "stop_note": note, "stop_told_at": None}
    if at_engine.exclude(state=State.STOPPING).update(state=State.STOPPING, stopping_at=timezone.now(), **fields):
        return True
    return reason == StopReason.CANCEL and bool(at_engine.exclude(stop_reason=reason).update(**fields))


def _account(attempt: Attempt, ended_at: datetime, lost_gpu_s: float) -> None:
    ran_s = max(0.0, (ended_at - attempt.started_at).total_seconds()) if attempt.started_at else 0.0
    Job.objects.filter(pk=attempt.job_id).update(
        ran_s=F("ran_s") + ran_s,
        attained_gpu_s=F("attained_gpu_s") + ran_s * attempt.gpu_count,
        work_lost_gpu_s=F("work_lost_gpu_s") + lost_gpu_s,
    )


def _move_job_on(attempt: Attempt, verdict: Verdict, *, exit_code: int | None, at: datetime, message: str) -> None:
    """Move the job to the state of the verdict, unless another attempt of it is live."""
    job = attempt.job
    counts = {"failures": verdict.failures, "requeues": verdict.requeues, "losses": verdict.losses}
    text = "; ".join(part for part in (attempt.stop_note, verdict.message, message) if part)[:500]
    if Attempt.objects.at_engine().filter(job=job).exists():
        return  # this was a withdrawn successor; the attempt at the engine will move the job on
    successor = Attempt.objects.filter(job=job, state=State.CLAIMED).first()
    if verdict.state == Job.State.QUEUED and successor and not job.hold_next:
        Job.objects.filter(pk=job.pk).update(
            state=Job.State.STARTING, reason=Reason.AWAITING_RELEASE, message=text, reasons=[], **counts
        )
        record(job, Kind.REQUEUED, f"{verdict.outcome.label}: {text}", attempt=attempt.number)
        return
    _settle(job, verdict, counts, text=text, exit_code=exit_code, at=at, attempt=attempt.number)
    if successor:
        _drop(successor, at)


def _settle(
    job: Job,
    verdict: Verdict,
    counts: dict[str, int],
    *,
    text: str,
    exit_code: int | None,
    at: datetime,
    attempt: int,
) -> None:
    final = verdict.state in Job.FINAL
    hold = job.hold_next and not final
    Job.objects.filter(pk=job.pk, state__in=Job.ACTIVE).update(
        state=verdict.state,
        reason=Reason.HELD if hold else verdict.reason or "",
        message=text,
        reasons=[],
        held=hold,
        hold_next=False,
        exit_code=exit_code if final else None,
        finished_at=at if final else None,
        queued_at=job.queued_at if final else at,
        **counts,
    )
    if final:
        tally(Count(Metric.JOBS_FINISHED, verdict.state))
    kind = Kind.FINISHED if final else Kind.REQUEUED
    record(job, kind, f"{verdict.outcome.label}{': ' + text if text else ''}", attempt=attempt)


def _drop(successor: Attempt, at: datetime) -> None:
    """End a successor that will not run, because its job has ended or is held."""
    Attempt.objects.filter(pk=successor.pk, state=State.CLAIMED).update(
        state=State.ENDED, outcome=Attempt.Outcome.CANCELLED, ended_at=at, gone_at=at
    )
