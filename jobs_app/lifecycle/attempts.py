"""Transitions of attempts: started, asked to stop, proven to have no process left (`attempt_endings` has the ends)."""

from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone
from structlog.contextvars import bound_contextvars

from database.bulk_insert import insert_many
from database.bulk_update import rewrite
from jobs_app.lifecycle.attempt_endings import AttemptEnd, end_attempts
from jobs_app.measurement.counters import Count, tally
from jobs_app.models import Attempt, Job, JobEvent, Metric
from jobs_app.models.job import arrival_of

State = Attempt.State
Kind = JobEvent.Kind
StopReason = Attempt.StopReason
TOLD_TO_STOP = frozenset(Attempt.AT_ENGINE) - {State.STOPPING}


def record(job: Job, kind: Kind, message: str = "", *, actor: User | None = None, attempt: int | None = None) -> None:
    """Append to the job's history; new events wake the scheduler."""
    JobEvent.objects.create(job=job, kind=kind, message=message[:500], actor=actor, attempt=attempt)


def about_attempt(attempt: Attempt) -> AbstractContextManager[None]:
    """Bind the attempt, its job and its nodes to all log lines within."""
    node = ",".join(attempt.nodes)
    return bound_contextvars(job_id=str(attempt.job_id), attempt=attempt.number, node=node, round=attempt.round_number)


class StopOrder(NamedTuple):
    """Why an attempt is to stop, and a note for its people."""

    reason: StopReason
    note: str = ""


def lock_job(job_id: UUID) -> None:
    """Lock the job, then its live attempts (always in this order), until the transaction ends."""
    lock_jobs([job_id])


def lock_jobs(ids: Collection[UUID]) -> None:
    """Lock the jobs in the order of their ids, then their live attempts, until the transaction ends."""
    list(Job.objects.select_for_update().filter(pk__in=ids).order_by("pk").values_list("pk"))
    list(Attempt.objects.live().select_for_update().filter(job__in=ids).order_by("pk").values_list("pk"))


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
    insert_many(
        JobEvent,
        [{"job_id": a.job_id, "kind": Kind.STARTED, "message": _where(a)[:500], "attempt": a.number} for a in begun],
    )
    _tally_waits({attempt.job_id: started[attempt.pk] for attempt in begun})
    return {attempt.pk for attempt in begun}


def _tally_waits(started: Mapping[UUID, datetime]) -> None:
    """Add the waiting times of jobs that have started for the first time to the metric."""
    rows = Job.objects.filter(pk__in=started).values_list("pk", "created_at", "begin_time", "started_at")
    waits = [
        (at - arrival_of(created_at, begin_time)).total_seconds()
        for pk, created_at, begin_time, at in rows
        if at and at == started[pk]
    ]
    tally(*(Count(Metric.JOB_WAIT, value=max(0.0, wait)) for wait in waits))


def _locked_jobs_of(attempts: Iterable[int]) -> dict[UUID, datetime | None]:
    """Lock the jobs, before any attempt as everywhere, and return when each first started."""
    of_these = Attempt.objects.filter(pk__in=attempts).values("job")
    jobs = Job.objects.select_for_update().filter(pk__in=of_these).order_by("pk")
    return dict(jobs.values_list("pk", "started_at"))


def _where(attempt: Attempt) -> str:
    return f"{attempt.gpu_count} x {attempt.gpu_type} on {', '.join(attempt.nodes)}"


def stop_attempt_of(job: Job, reason: StopReason, *, note: str, actor: User | None = None) -> bool:
    """Request the stop of the job's attempt; a cancel overrides an earlier reason. False if there is no live attempt.

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
            withdraw_all({waiting.pk: StopOrder(reason, note)})
        return bool(told or waiting) or Attempt.objects.at_engine().filter(job=job).exists()


@transaction.atomic
def stop_attempts(orders: Mapping[UUID, StopOrder]) -> None:
    """Request the stops of these jobs' attempts in bulk, as `stop_attempt_of` does for reasons other than a cancel."""
    lock_jobs(orders.keys())
    live = Attempt.objects.live().filter(job__in=orders.keys()).order_by("pk")
    of_jobs = list(live.values_list("pk", "job", "state"))
    told = {pk: job for pk, job, state in of_jobs if state in TOLD_TO_STOP}
    now = timezone.now()
    Attempt.objects.filter(pk__in=told).update(state=State.STOPPING, stopping_at=now, stop_requested_at=None)
    rewrite(Attempt, ("stop_reason", "stop_note"), {pk: orders[job] for pk, job in told.items()})
    active = Job.objects.filter(pk__in=told.values(), state__in=Job.ACTIVE).values_list("pk", flat=True)
    rewrite(Job, ("state", "message"), {job: (Job.State.STOPPING, orders[job].note) for job in active})
    insert_many(JobEvent, [_stopping_event(job, orders[job]) for job in told.values()])
    withdraw_all({pk: orders[job] for pk, job, state in of_jobs if state == State.CLAIMED})


def _stopping_event(job: UUID, order: StopOrder) -> dict[str, Any]:
    words = f"{order.reason.label}: {order.note}" if order.note else order.reason.label
    return {"job_id": job, "kind": Kind.STOPPING, "message": words[:500]}


def preempt(notes: Mapping[int, str], moved: Collection[int] = ()) -> set[int]:
    """Preempt running attempts, given with a note each, in bulk; returns those that were still running.

    `moved`: those whose jobs go on elsewhere at once. Call it inside a transaction: it locks the rows that it changes.
    """
    running = Attempt.objects.select_for_update(of=("self",)).filter(pk__in=notes, state=State.RUNNING)
    told = list(running.order_by("pk").values_list("pk", "job", "number"))
    Attempt.objects.filter(pk__in=[pk for pk, _, _ in told]).update(state=State.STOPPING, stopping_at=timezone.now())
    reasons = {pk: StopReason.MOVE if pk in moved else StopReason.PREEMPT for pk, _, _ in told}
    rewrite(Attempt, ("stop_reason", "stop_note"), {pk: (reasons[pk], notes[pk]) for pk, _, _ in told})
    rewrite(Job, ("state", "message"), {job: (Job.State.STOPPING, notes[pk]) for pk, job, _ in told})
    events = [
        {"job_id": job, "kind": Kind.STOPPING, "message": f"{reasons[pk].label}: {notes[pk]}"[:500], "attempt": number}
        for pk, job, number in told
    ]
    insert_many(JobEvent, events)
    return {pk for pk, _, _ in told}


@transaction.atomic
def withdraw_all(orders: Mapping[int, StopOrder]) -> None:
    """End these attempts as far as they still wait for their GPUs: they have no processes."""
    if not orders:
        return
    claimed = Attempt.objects.filter(pk__in=orders, state=State.CLAIMED)
    lock_jobs(set(claimed.values_list("job", flat=True)))
    still = list(claimed.values_list("pk", flat=True))
    rewrite(Attempt, ("stop_reason", "stop_note"), {pk: orders[pk] for pk in still})
    end_attempts(dict.fromkeys(still, AttemptEnd(timezone.now())))


def record_process_exit_proof(attempts: Iterable[int], *, at: datetime) -> None:
    """Record the proof that none of their processes is left; their GPUs may be given to others."""
    Attempt.objects.filter(pk__in=list(attempts), gone_at=None).update(gone_at=at)


def _tell(job: Job, reason: StopReason, note: str) -> bool:
    at_engine = Attempt.objects.at_engine().filter(job=job)
    fields = {"stop_reason": reason, "stop_note": note, "stop_requested_at": None}
    if at_engine.exclude(state=State.STOPPING).update(state=State.STOPPING, stopping_at=timezone.now(), **fields):
        return True
    return reason == StopReason.CANCEL and bool(at_engine.exclude(stop_reason=reason).update(**fields))
