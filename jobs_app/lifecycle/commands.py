"""Commands of users on submitted jobs: cancel, hold, release, requeue, change."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from audit_app.services import note
from jobs_app.errors import Conflict, InvalidSpec, JobIsFinished, JobIsNotHeld
from jobs_app.lifecycle.attempts import lock_job, record, stop_attempt_of
from jobs_app.measurement.counters import Count, tally
from jobs_app.models import Attempt, Job, JobEvent, JobTag, Metric, Reason
from jobs_app.models.job import held_text
from jobs_app.notifications.outbox import announce_ends
from jobs_app.submission.admission import note_of_weight, weight_faults
from jobs_app.submission.changing import COLUMNS as REQUEST_COLUMNS
from jobs_app.submission.spec import order_fault

State = Job.State
StopReason = Attempt.StopReason
Kind = JobEvent.Kind

DESCRIPTIVE = {"name", "tags"}
"""Columns that may be changed after the job has finished: they have no effect on scheduling."""

TIMES = {"begin_time", "deadline"}
SIZE = {"gpus_min", "gpus_max"}


def cancel_job(job: Job, *, actor: User | None, because: str = "") -> None:
    """Cancel the job: at once if it is queued, else as soon as its processes are proven gone."""
    why = because or _by(actor)
    with transaction.atomic():
        lock_job(job.pk)
        _note("cancel", job, actor, because)
        if _finish_queued(job, Reason.CANCELLED_BY_USER, message=why, actor=actor):
            return
        if not stop_attempt_of(job, StopReason.CANCEL, note=why, actor=actor):
            raise JobIsFinished(Job.objects.only("state").get(pk=job.pk).get_state_display())


def hold_job(job: Job, *, actor: User | None, because: str = "") -> None:
    """Hold the job in the queue; a running job is requeued gracefully first."""
    why = because or _by(actor)
    with transaction.atomic():
        lock_job(job.pk)
        _note("hold", job, actor, because)
        queued = Job.objects.filter(pk=job.pk, state=State.QUEUED)
        if queued.update(held=True, reason=Reason.HELD, message=held_text(str(job), why), reasons=[]):
            record(job, Kind.HELD, why, actor=actor)
            return
        Job.objects.filter(pk=job.pk, state__in=Job.ACTIVE).update(hold_next=True)
        if not stop_attempt_of(job, StopReason.REQUEUE, note=f"held {why}", actor=actor):
            raise JobIsFinished(Job.objects.only("state").get(pk=job.pk).get_state_display())


def release_job(job: Job, *, actor: User | None) -> None:
    """Release a held job; a job that would be held once it has stopped will not be held."""
    with transaction.atomic():
        lock_job(job.pk)
        _note("release", job, actor)
        held = Job.objects.filter(pk=job.pk, held=True)
        to_be_held = Job.objects.filter(pk=job.pk, hold_next=True)
        released = held.update(held=False, reason=Reason.NEXT_ROUND, message=Reason.NEXT_ROUND.label)
        if not released and not to_be_held.update(hold_next=False):
            raise JobIsNotHeld
        record(job, Kind.RELEASED, _by(actor), actor=actor)


def requeue_job(job: Job, *, actor: User | None) -> None:
    """Stop a running job gracefully and put it back in the queue."""
    with transaction.atomic():
        _note("requeue", job, actor)
        if not stop_attempt_of(job, StopReason.REQUEUE, note=_by(actor), actor=actor):
            found = Job.objects.only("state").get(pk=job.pk)
            if found.is_final:
                raise JobIsFinished(found.get_state_display())
            raise Conflict("The job waits in the queue already.")


def change_job(job: Job, asked: Mapping[str, Any], *, actor: User, administrator: bool = False) -> None:
    """Change the columns that `read_change` returns: of a finished job name and tags, of a queued one its request.

    `job` is as it was read: a request is valid as a whole, and one that was changed since is not written over.
    """
    with transaction.atomic():
        lock_job(job.pk)
        found = Job.objects.select_related("team", "code").get(pk=job.pk)
        if found.is_final and not asked.keys() <= DESCRIPTIVE:
            raise JobIsFinished(found.get_state_display())
        if "begin_time" in asked and found.state != State.QUEUED:
            raise Conflict("Only a job that waits in the queue has a begin time to change: requeue it first.")
        if REQUEST_COLUMNS.keys() & asked.keys() and found.state != State.QUEUED:
            raise Conflict("The job has started in the meantime: what it requests is changed while it waits.")
        if REQUEST_COLUMNS.keys() & asked.keys() and (new := _changed_since(job, found)):
            raise Conflict(
                f"Somebody changed its {', '.join(new)} in the meantime: load the job again, and change it then."
            )
        if TIMES & asked.keys() and (fault := order_fault(**_times(found, asked))):
            raise InvalidSpec.at("/deadline", "invalid", fault)
        if faults := list(weight_faults(asked.get("weight", 0.0), found.team, administrator=administrator)):
            raise InvalidSpec(faults)
        changes = {column: value for column, value in asked.items() if getattr(found, column) != value}
        if changes:
            _change(found, changes, actor)


def _changed_since(read: Job, found: Job) -> list[str]:
    """Columns of the request that somebody has changed since the job was read."""
    return [column for column in REQUEST_COLUMNS if getattr(read, column) != getattr(found, column)]


def _times(job: Job, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Begin and deadline with the change."""
    return {"begin": asked.get("begin_time", job.begin_time), "deadline": asked.get("deadline", job.deadline)}


def _change(job: Job, changes: Mapping[str, Any], actor: User) -> None:
    """Write the changes and an event; call it under the job's lock."""
    words = list(_changed_values(job, changes))
    words += [text for text in [note_of_weight(changes.get("weight", 0), job.team)] if text]
    Job.objects.filter(pk=job.pk).update(**changes)
    if "tags" in changes:
        JobTag.objects.filter(job=job).delete()
        JobTag.objects.bulk_create(JobTag.rows_of(job.pk, changes["tags"]))
    record(job, Kind.CHANGED, "; ".join(words), actor=actor)
    _note("change", job, actor, "; ".join(words))


def _changed_values(job: Job, changes: Mapping[str, Any]) -> Iterator[str]:
    """Each value before and after; the fewest and the most GPUs are one."""
    if SIZE & changes.keys():
        before = job.gpus_min, job.gpus_max
        after = changes.get("gpus_min", job.gpus_min), changes.get("gpus_max", job.gpus_max)
        yield f"GPUs {_range(*before)} → {_range(*after)}"
    for column in (name for name in changes if name not in SIZE):
        yield f"{column.removesuffix('_s')} {_word(getattr(job, column))} → {_word(changes[column])}"


def _range(least: int, most: int) -> str:
    return f"{least}" if least == most else f"{least} to {most}"


def _finish_queued(job: Job, reason: Reason, *, message: str, actor: User | None) -> bool:
    finished = Job.objects.filter(pk=job.pk, state=State.QUEUED).update(
        state=State.CANCELLED, held=False, reason=reason, message=message, reasons=[], finished_at=timezone.now()
    )
    if finished:
        tally(Count(Metric.JOBS_FINISHED, State.CANCELLED))
        record(job, Kind.FINISHED, f"{reason.label}: {message}", actor=actor)
        announce_ends([job.pk])
    return bool(finished)


def _by(actor: User | None) -> str:
    return f"by {actor.get_username()}" if actor else ""


def _note(verb: str, job: Job, actor: User | None, message: str = "") -> None:
    note(f"job.{verb}", actor=actor, target=str(job), target_id=job.pk, message=message)


def _word(value: Any) -> str:
    """Value of a column as text for the history."""
    match value:
        case None:
            return "none"
        case dict():
            return ", ".join(f"{name}={text}" for name, text in value.items()) or "none"
        case float():
            return f"{value:g}"
        case datetime():
            return f"{value.astimezone(UTC):%F %H:%M} UTC"
    return str(value)
