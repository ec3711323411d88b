"""Notifications of recurring jobs whose runs are refused, to the owner and the team that subscribe to them."""

from datetime import UTC, datetime

from django.conf import settings

from jobs_app.models import NotificationTarget, RecurringJob
from jobs_app.notifications.outbox import Announcement, write
from jobs_app.notifications.recipients import targets_of

Event = NotificationTarget.Event


def announce_refusal(recurring: RecurringJob, why: str, due_at: datetime) -> None:
    """Write the notifications of a refused due time, once a day for each target; call it in its transaction."""
    key = f"refused:{recurring.pk}:{due_at.astimezone(UTC):%F}"
    facts = {
        "recurring_job": {
            "id": recurring.pk,
            "name": recurring.name,
            "team": recurring.team.name,
            "owner": recurring.owner.username,
            "due_at": due_at.isoformat(),
            "message": why,
            "url": f"{settings.PUBLIC_URL}/recurring/{recurring.pk}",
        }
    }
    targets = [one for one in targets_of(recurring.owner, recurring.team) if Event.RUN_REFUSED in one.events]
    write(Announcement(target.pk, Event.RUN_REFUSED, key, facts) for target in targets)
