"""Notifications of teams with a large share of failed jobs."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Count, Q

from jobs_app.models import Job, NotificationTarget
from jobs_app.notifications.outbox import FAILED, Announcement, write

Event = NotificationTarget.Event
WITHIN = timedelta(hours=24)
LEAST_ENDED = 10
"""Of fewer jobs a share says little."""


def announce_failed_shares(now: datetime) -> None:
    """Notify each team with such a share of failed jobs, once a day."""
    if targets := _targets():
        teams = {team for _, team in targets}
        ended = Job.objects.filter(team__in=teams, state__in=Job.FINAL, finished_at__gt=now - WITHIN)
        counts = (
            ended.order_by()
            .values_list("team", "team__name")
            .annotate(ended=Count("pk"), failed=Count("pk", filter=Q(state__in=FAILED)))
        )
        rows = {team: (name, ended, failed) for team, name, ended, failed in counts}
        write(one for target, team in targets if team in rows for one in of_team(target, *rows[team], now))


def of_team(target: int, name: str, ended: int, failed: int, now: datetime) -> Iterator[Announcement]:
    """Notification for a target of the team; None if the share is small."""
    if ended >= LEAST_ENDED and failed >= settings.MOTLEY_FAILED_SHARE * ended:
        facts = {"team": name, "ended": ended, "failed": failed, "hours": round(WITHIN.total_seconds() / 3600)}
        yield Announcement(target, Event.FAILED_SHARE, f"failed-share:{now:%Y-%m-%d}", facts)


def _targets() -> list[tuple[int, int]]:
    """Targets of teams that subscribe to this event, with their teams."""
    rows = NotificationTarget.objects.exclude(team=None).values_list("pk", "team", "events")
    return [(pk, team) for pk, team, events in rows if team and Event.FAILED_SHARE in events]
