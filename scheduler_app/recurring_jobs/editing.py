"""Commands of users on recurring jobs: add, change, pause, resume, delete."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from audit_app.models import Action
from audit_app.services import note
from jobs_app.ended_logins import refuse_ended_login
from jobs_app.errors import Conflict, InvalidSpec
from jobs_app.models import RecurringJob, Team
from scheduler_app.recurring_jobs.admission import (
    admitted_spec,
    refuse_replaced_array,
    stored_spec,
    why_owner_is_gone,
    why_stopped,
)
from scheduler_app.recurring_jobs.schedule import next_due_at, schedule_faults

Columns = Mapping[str, Any]
"""Columns of a recurring job; those that are not given are missing. `spec` is as it was sent."""


def admitted_recurring_job(asked: Columns, *, owner: User, now: datetime) -> RecurringJob:
    """A recurring job of which spec and schedule are valid, unsaved; raises `InvalidSpec` with every fault."""
    recurring = RecurringJob(**{**asked, "spec": {}}, owner=owner, created_at=now, changed_at=now)
    faults = list(schedule_faults(recurring.schedule, recurring.zone, now))
    try:
        job = admitted_spec(asked["spec"], owner)
    except InvalidSpec as error:
        raise InvalidSpec([*faults, *error.faults]) from None
    if faults:
        raise InvalidSpec(faults)
    refuse_replaced_array(recurring.concurrency, asked["spec"])
    recurring.team, recurring.code, recurring.spec = job.team, job.code, stored_spec(asked["spec"])
    recurring.name = recurring.name or job.columns["name"]
    recurring.next_due_at = next_due_at(recurring.schedule, recurring.zone, now)
    return recurring


@transaction.atomic
def add_recurring_job(recurring: RecurringJob) -> None:
    """Insert one that was admitted; under the lock of its team its number and its name are checked.

    Raises `LoginEnded`, as changing and resuming one does.
    """
    refuse_ended_login(recurring.owner)
    _lock_names(recurring.team_id)
    most = settings.MOTLEY_RECURRING_JOBS_PER_TEAM
    if RecurringJob.objects.filter(team=recurring.team).count() >= most:
        text = f"Team {recurring.team} has {most:,} recurring jobs, which is the limit: delete one first."
        raise InvalidSpec.at("", "too_many", text)
    _refuse_taken_name(recurring)
    recurring.save()
    _note(Action.RECURRING_ADD, recurring, recurring.owner)


def change_recurring_job(
    recurring: RecurringJob,
    asked: Columns,
    *,
    actor: User,
    now: datetime,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Change the given columns; `check` may refuse while the row is locked. A new spec is its writer's.

    One that is paused stays so.
    """
    job = admitted_spec(asked["spec"], actor, recurring.team) if "spec" in asked else None
    with transaction.atomic():
        refuse_ended_login(actor)
        if "name" in asked:
            _lock_names(recurring.team_id)
        locked = RecurringJob.objects.select_for_update(of=("self",)).select_related("team").get(pk=recurring.pk)
        check()
        changed = [name for name, value in asked.items() if name != "spec" and getattr(locked, name) != value]
        for name in changed:
            setattr(locked, name, asked[name])
        if job is not None:
            changed.append("spec")
            locked.spec, locked.owner, locked.code = stored_spec(asked["spec"]), actor, job.code
            if locked.paused_because == RecurringJob.OWNER_LINKED:
                locked.paused_because = RecurringJob.WRITTEN_ANEW
        refuse_replaced_array(locked.concurrency, locked.spec)
        if {"schedule", "zone"} & set(changed):
            _reschedule(locked, now)
        if changed:
            _refuse_taken_name(locked)
            locked.changed_at = now
            locked.save()
            _note(Action.RECURRING_CHANGE, locked, actor, f"changed {', '.join(changed)}")


def pause_recurring_job(recurring: RecurringJob, *, actor: User, now: datetime) -> None:
    """Pause it: nothing is submitted until it is resumed. Idempotent."""
    because = f"by {actor.get_username()}"
    with transaction.atomic():
        rows = RecurringJob.objects.filter(pk=recurring.pk, paused_at=None)
        if rows.update(paused_at=now, paused_because=because, changed_at=now):
            _note(Action.RECURRING_PAUSE, recurring, actor)


def resume_recurring_job(recurring: RecurringJob, *, actor: User, now: datetime) -> None:
    """Resume it from its next due time on. Idempotent.

    Whoever resumes one whose owner is gone, or may not have written its spec, becomes its owner.
    """
    with transaction.atomic():
        refuse_ended_login(actor)
        locked = (
            RecurringJob.objects.select_for_update(of=("self",)).select_related("team", "owner").get(pk=recurring.pk)
        )
        if locked.paused_at is None:
            return
        if why_owner_is_gone(locked.owner, locked.team) or locked.paused_because == RecurringJob.OWNER_LINKED:
            locked.owner, locked.paused_because = actor, ""
        if why := why_stopped(locked):
            raise Conflict(why)
        locked.paused_at, locked.paused_because, locked.changed_at = None, "", now
        locked.next_due_at = next_due_at(locked.schedule, locked.zone, now)
        locked.save()
        _note(Action.RECURRING_RESUME, locked, actor)


@transaction.atomic
def delete_recurring_job(recurring: RecurringJob, *, actor: User) -> None:
    """Delete it with the record of its due times; its jobs stay, and go on."""
    _note(Action.RECURRING_DELETE, recurring, actor)
    recurring.delete()


def _reschedule(recurring: RecurringJob, now: datetime) -> None:
    if faults := list(schedule_faults(recurring.schedule, recurring.zone, now)):
        raise InvalidSpec(faults)
    recurring.next_due_at = next_due_at(recurring.schedule, recurring.zone, now)


def _lock_names(team_id: int) -> None:
    """Let nobody else add or rename a recurring job of the team until the end of the transaction; before one is locked.

    Its submission locks it and then shares the row of its team, which this lock allows.
    """
    Team.objects.select_for_update(no_key=True).get(pk=team_id)


def _refuse_taken_name(recurring: RecurringJob) -> None:
    others = RecurringJob.objects.filter(team=recurring.team, name=recurring.name).exclude(pk=recurring.pk)
    if others.exists():
        text = f"Team {recurring.team} has a recurring job {recurring.name!r} already: give another name."
        raise InvalidSpec.at("/name", "name_taken", text)


def _note(action: Action, recurring: RecurringJob, actor: User, message: str = "") -> None:
    note(action, actor=actor, target=recurring.name, target_id=recurring.pk, message=message)
