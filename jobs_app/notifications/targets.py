"""Targets of notifications: add, change, test and delete them."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import uuid4

from django.contrib.auth.models import User
from django.db import transaction

from audit_app.models import Action
from audit_app.services import note
from jobs_app.ended_logins import refuse_ended_login
from jobs_app.errors import Conflict, InvalidSpec, NotAllowed
from jobs_app.models import Notification, NotificationTarget, Team
from jobs_app.notifications.addresses import parse_address
from jobs_app.notifications.outbox import Announcement, write
from jobs_app.notifications.webhook import new_key
from jobs_app.secrets import seal

Kind = NotificationTarget.Kind
Event = NotificationTarget.Event
MOST_TARGETS = 20
"""Of one person, and of one team."""
BETWEEN_TESTS = timedelta(seconds=10)


class NewTarget(NamedTuple):
    """A new target, and the key that signs its messages, which is shown this once; empty unless it is a webhook."""

    target: NotificationTarget
    key: str


@transaction.atomic
def add_target(
    kind: NotificationTarget.Kind, address: str, events: Collection[str], *, team: Team | None, actor: User
) -> NewTarget:
    """Add a target of the actor, or of the team, which the actor must manage.

    Raises `LoginEnded` for one of the actor, whose account may be another person's by now.
    """
    _refuse_stranger(team, actor)
    if team is None:
        refuse_ended_login(actor)
    parsed, chosen = parse_address(kind, address), _checked(events, team)
    key = new_key() if kind == Kind.WEBHOOK else ""
    of_one = NotificationTarget.objects.filter(team=team, user=None if team else actor)
    if of_one.count() >= MOST_TARGETS:
        raise InvalidSpec.at("", "too_many", f"There are {MOST_TARGETS} targets already: delete one first.")
    target = NotificationTarget.objects.create(
        kind=kind,
        team=team,
        user=None if team else actor,
        shown=parsed.shown,
        encrypted=seal(parsed.text),
        encrypted_key=seal(key) if key else "",
        events=chosen,
        created_by=actor,
    )
    note(Action.TARGET_ADD, actor=actor, target=str(target), target_id=target.pk)
    return NewTarget(target, key)


@transaction.atomic
def change_events(target: NotificationTarget, events: Collection[str], *, actor: User) -> None:
    """Set the events that are sent to the target."""
    _refuse_stranger(target.team, actor)
    target.events = _checked(events, target.team)
    target.save(update_fields=["events"])
    note(Action.TARGET_CHANGE, actor=actor, target=str(target), target_id=target.pk, message=", ".join(target.events))


@transaction.atomic
def delete_target(target: NotificationTarget, *, actor: User) -> None:
    """Delete the target and the notifications that it has not been sent."""
    _refuse_stranger(target.team, actor)
    note(Action.TARGET_DELETE, actor=actor, target=str(target), target_id=target.pk)
    target.delete()


@transaction.atomic
def send_test(target: NotificationTarget, now: datetime, *, actor: User) -> None:
    """Send the target a message at once, through the outbox as any other."""
    _refuse_stranger(target.team, actor)
    locked = NotificationTarget.objects.select_for_update().get(pk=target.pk)
    tests = Notification.objects.filter(target=locked, event=Event.TEST)
    if tests.filter(created_at__gt=now - BETWEEN_TESTS).exists():
        raise Conflict(f"A test was asked for within the last {BETWEEN_TESTS.seconds} s: see what became of it first.")
    NotificationTarget.objects.filter(pk=target.pk).update(retry_at=None)
    write([Announcement(target.pk, Event.TEST, f"test:{uuid4()}", {"by": actor.get_username()})])


@transaction.atomic
def send_again(notification: Notification, now: datetime, *, actor: User) -> None:
    """Retry a notification that was given up."""
    _refuse_stranger(notification.target.team, actor)
    dead = Notification.objects.filter(pk=notification.pk, state=Notification.State.DEAD)
    if not dead.update(state=Notification.State.PENDING, due_at=now, lease=None, tries=0):
        raise Conflict("Only a notification that was given up can be sent again.")
    NotificationTarget.objects.filter(pk=notification.target_id).update(retry_at=None)


def _refuse_stranger(team: Team | None, actor: User) -> None:
    """Everybody sets their own targets (no team), leads and administrators those of a team."""
    if team is not None and not Team.objects.managed_by(actor).filter(pk=team.pk).exists():
        raise NotAllowed(f"Only leads of the team {team} and administrators set its notifications.")


def _checked(events: Collection[str], team: Team | None) -> list[str]:
    """The events in their usual order; raises `InvalidSpec`."""
    known = [event for event in NotificationTarget.CHOSEN if team is not None or event != Event.FAILED_SHARE]
    if unknown := sorted({*events} - {*known}):
        names = ", ".join(known)
        raise InvalidSpec.at("/events", "unknown_event", f"There is no event {unknown[0]!r} here. There are: {names}.")
    if not events:
        raise InvalidSpec.at("/events", "required", "Choose at least one event.")
    return [event.value for event in known if event in events]
