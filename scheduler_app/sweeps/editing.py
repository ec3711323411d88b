"""Commands of users on sweeps: start, stop, delete."""

from django.contrib.auth.models import User
from django.db import transaction

from audit_app.models import Action
from audit_app.services import note
from jobs_app.ended_logins import refuse_ended_login
from jobs_app.errors import Conflict, InvalidSpec
from jobs_app.models import Sweep, Team

MOST_UNFINISHED = 20
"""Unfinished sweeps of one team."""


@transaction.atomic
def start_sweep(sweep: Sweep) -> None:
    """Insert one that was admitted; under the lock of its team its name and the number of sweeps are checked.

    Raises `LoginEnded`.
    """
    refuse_ended_login(sweep.owner)
    Team.objects.select_for_update(no_key=True).get(pk=sweep.team.pk)
    if Sweep.objects.unfinished().filter(team=sweep.team).count() >= MOST_UNFINISHED:
        text = f"Team {sweep.team} has {MOST_UNFINISHED} unfinished sweeps, which is the limit: stop one first."
        raise InvalidSpec.at("", "too_many", text)
    if Sweep.objects.filter(team=sweep.team, name=sweep.name).exists():
        text = f"Team {sweep.team} has a sweep {sweep.name!r} already: give another name."
        raise InvalidSpec.at("/name", "name_taken", text)
    sweep.save()
    note(Action.SWEEP_START, actor=sweep.owner, target=sweep.name, target_id=sweep.pk)


@transaction.atomic
def stop_sweep(sweep: Sweep, *, actor: User) -> None:
    """Stop it: no trial is started any more, and the scheduler cancels those that are open. Idempotent."""
    message = f"Stopped by {actor.get_username()}."
    if Sweep.objects.filter(pk=sweep.pk, state=Sweep.State.RUNNING).update(state=Sweep.State.STOPPING, message=message):
        note(Action.SWEEP_STOP, actor=actor, target=sweep.name, target_id=sweep.pk)


@transaction.atomic
def delete_sweep(sweep: Sweep, *, actor: User) -> None:
    """Delete a sweep that has ended, with the record of its trials; their jobs stay."""
    locked = Sweep.objects.select_for_update(of=("self",)).get(pk=sweep.pk)
    if locked.state in Sweep.UNFINISHED:
        raise Conflict(f"The sweep is {locked.get_state_display()}: stop it first.")
    note(Action.SWEEP_DELETE, actor=actor, target=sweep.name, target_id=sweep.pk)
    locked.delete()
