"""What people do to jobs and tokens after submission: cancel, hold, release, requeue, change; issue and revoke."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from audit_app.models import Action
from audit_app.services import note
from jobs_app.attempts import lock_job, stop_attempt_of
from jobs_app.errors import Conflict, InvalidSpec, JobIsFinished, JobIsNotHeld
from jobs_app.history import record
from jobs_app.limits import note_of_weight, weight_faults
from jobs_app.models import ApiToken, Attempt, Job, JobDependency, JobEvent, JobTag, Metric, Reason
from jobs_app.spec import parse_change
from jobs_app.tallying import Count, tally

State = Job.State
StopReason = Attempt.StopReason
Kind = JobEvent.Kind

DESCRIPTIVE = {"name", "tags"}
"""Columns that may change after the end, for they decide nothing."""


def cancel_job(job: Job, *, actor: User | None) -> None:
    """End the job: at once if it is queued, else as soon as its processes are proven gone."""
    with transaction.atomic():
        lock_job(job.pk)
        _note("cancel", job, actor)
        if _finish_queued(job, Reason.CANCELLED_BY_USER, message=_by(actor), actor=actor):
            return
        if not stop_attempt_of(job, StopReason.CANCEL, note=_by(actor), actor=actor):
            raise JobIsFinished(Job.objects.only("state").get(pk=job.pk).get_state_display())


def hold_job(job: Job, *, actor: User | None) -> None:
    """Keep the job in the queue; one that runs is requeued gracefully first."""
    with transaction.atomic():
        lock_job(job.pk)
        _note("hold", job, actor)
        queued = Job.objects.filter(pk=job.pk, state=State.QUEUED)
        if queued.update(held=True, reason=Reason.HELD, message=_by(actor), reasons=[]):
            record(job, Kind.HELD, _by(actor), actor=actor)
            return
        Job.objects.filter(pk=job.pk, state__in=Job.ACTIVE).update(hold_next=True)
        if not stop_attempt_of(job, StopReason.REQUEUE, note=f"held {_by(actor)}", actor=actor):
            raise JobIsFinished(Job.objects.only("state").get(pk=job.pk).get_state_display())


def release_job(job: Job, *, actor: User | None) -> None:
    """Let a held job be scheduled again; one that is to be held once it has stopped will not be."""
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
            raise Conflict("Only a job that has been started can be requeued.")


def change_job(job: Job, data: Any, *, actor: User) -> None:
    """Give the job another name, weight, deadline, time limit, other tags or retries; finished, only name and tags."""
    asked = parse_change(data)
    with transaction.atomic():
        lock_job(job.pk)
        found = Job.objects.select_related("team").get(pk=job.pk)
        if found.is_final and not asked.keys() <= DESCRIPTIVE:
            raise JobIsFinished(found.get_state_display())
        if faults := list(weight_faults(asked.get("weight", 0.0), found.team, actor)):
            raise InvalidSpec(faults)
        changes = {column: value for column, value in asked.items() if getattr(found, column) != value}
        if changes:
            _change(found, changes, actor)


def _change(job: Job, changes: Mapping[str, Any], actor: User) -> None:
    """Under the job's lock."""
    words = [
        f"{column.removesuffix('_s')} {_word(getattr(job, column))} → {_word(changes[column])}" for column in changes
    ]
    words += [text for text in [note_of_weight(changes.get("weight", 0), job.team)] if text]
    Job.objects.filter(pk=job.pk).update(**changes)
    if "tags" in changes:
        JobTag.objects.filter(job=job).delete()
        JobTag.objects.bulk_create(JobTag.rows_of(job.pk, changes["tags"]))
    record(job, Kind.CHANGED, "; ".join(words), actor=actor)
    _note("change", job, actor, "; ".join(words))


def settle_dependencies() -> None:
    """Cancel the queued jobs that wait for a job which can no longer do what they wait for."""
    for need in JobDependency.objects.broken().filter(child__state=State.QUEUED).select_related("child", "parent"):
        message = f"{need.parent} is {need.parent.get_state_display()}"
        with transaction.atomic():
            _finish_queued(need.child, Reason.DEPENDENCY_FAILED, message=message, actor=None)


@transaction.atomic
def issue_token(user: User, *, name: str, scope: ApiToken.Scope, expires_at: datetime | None = None) -> str:
    """A new token's text: the only time that it can be read."""
    token = ApiToken(user=user, name=name, scope=scope, expires_at=expires_at)
    text = token.set_text()
    token.save()
    note(Action.TOKEN_CREATE, actor=user, target=name, target_id=token.pk, message=f"may {scope}")
    return text


@transaction.atomic
def revoke_token(token: ApiToken, *, actor: User | None = None) -> None:
    """Whatever uses it is refused from now on. By its owner, if nobody else is named."""
    if ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now()):
        note(Action.TOKEN_REVOKE, actor=actor or token.user, target=token.name, target_id=token.pk)


def _finish_queued(job: Job, reason: Reason, *, message: str, actor: User | None) -> bool:
    finished = Job.objects.filter(pk=job.pk, state=State.QUEUED).update(
        state=State.CANCELLED, held=False, reason=reason, message=message, reasons=[], finished_at=timezone.now()
    )
    if finished:
        tally(Count(Metric.JOBS_FINISHED, State.CANCELLED))
        record(job, Kind.FINISHED, f"{reason.label}: {message}", actor=actor)
    return bool(finished)


def _by(actor: User | None) -> str:
    return f"by {actor.get_username()}" if actor else ""


def _note(verb: str, job: Job, actor: User | None, message: str = "") -> None:
    note(f"job.{verb}", actor=actor, target=str(job), target_id=job.pk, message=message)


def _word(value: Any) -> str:
    """Of a column, for the history."""
    match value:
        case None:
            return "none"
        case dict():
            return ", ".join(f"{name}={text}" for name, text in value.items()) or "none"
        case float():
            return f"{value:g}"
    return str(value)
