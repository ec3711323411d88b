"""Texts of notifications, and the JSON of webhooks."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from django.conf import settings

from jobs_app.models import Job, Notification, NotificationTarget

Event = NotificationTarget.Event
MOST_LINES = 20
"""Of a message that gathers several notifications."""


class Text(NamedTuple):
    """Subject and body of a message for people."""

    title: str
    body: str


def payload_of(notification: Notification) -> dict[str, Any]:
    """JSON of a webhook. `id` stays the same when the message is sent again."""
    return {
        "id": str(notification.pk),
        "event": notification.event,
        "at": notification.created_at.isoformat(),
        "text": sentence_of(notification),
        **notification.facts,
    }


def text_of(notifications: Sequence[Notification]) -> Text:
    """One message that gathers these notifications of one target."""
    sentences = [sentence_of(one) for one in notifications]
    if len(notifications) == 1:
        return Text(f"Motley: {sentences[0]}", "\n".join([*_details(notifications[0]), "", _footer()]).strip())
    rest = len(sentences) - MOST_LINES
    lines = [f"- {sentence} {_url(one)}".rstrip() for one, sentence in zip(notifications, sentences, strict=True)]
    more = [f"… and {rest} more"] if rest > 0 else []
    return Text(f"Motley: {len(sentences)} notifications", "\n".join([*lines[:MOST_LINES], *more, "", _footer()]))


def sentence_of(notification: Notification) -> str:
    """One line on what happened."""
    return SENTENCES[Event(notification.event)](notification.facts)


def _end(facts: Mapping[str, Any]) -> str:
    job = facts["job"]
    return f"job {job['name']} of team {job['team']}: {Job.State(job['state']).label}"


def _retries_used(facts: Mapping[str, Any]) -> str:
    return f"{_end(facts)}, all {facts['job']['retries']} retries are used"


def _waits(facts: Mapping[str, Any]) -> str:
    job = facts["job"]
    return f"job {job['name']} of team {job['team']} waits longer than forecast"


def _node_lost(facts: Mapping[str, Any]) -> str:
    jobs = facts["jobs"]
    return f"node {facts['node']['name']} is lost; {jobs} job{'s' * (jobs != 1)} {'was' if jobs == 1 else 'were'} there"


def _failed_share(facts: Mapping[str, Any]) -> str:
    share = facts["failed"] / max(1, facts["ended"])
    ended = f"{facts['ended']} jobs that ended within {facts['hours']} hours"
    return f"team {facts['team']}: {facts['failed']} of the {ended} failed ({share:.0%})"


def _run_refused(facts: Mapping[str, Any]) -> str:
    recurring = facts["recurring_job"]
    return f"recurring job {recurring['name']} of team {recurring['team']} was not submitted: {recurring['message']}"


SENTENCES: dict[NotificationTarget.Event, Callable[[Mapping[str, Any]], str]] = {
    Event.JOB_ENDED: _end,
    Event.JOB_FAILED: _end,
    Event.RETRIES_USED: _retries_used,
    Event.JOB_WAITS: _waits,
    Event.NODE_LOST: _node_lost,
    Event.FAILED_SHARE: _failed_share,
    Event.RUN_REFUSED: _run_refused,
    Event.TEST: lambda facts: f"a test, asked for by {facts['by']}",
}


def _details(notification: Notification) -> list[str]:
    """Lines of the body of a message about one notification."""
    job = notification.facts.get("job", {})
    lines = [
        job.get("message", ""),
        f"Exit code {job['exit_code']}" if job.get("exit_code") is not None else "",
        f"{job['gpu_hours']:g} GPU-hours" if job.get("gpu_hours") else "",
        f"Owner: {job['owner']}" if job else "",
        f"Its start was forecast until {notification.facts.get('expected_by')}."
        if notification.event == Event.JOB_WAITS
        else "",
        _url(notification),
    ]
    return [line for line in lines if line]


def _url(notification: Notification) -> str:
    facts = notification.facts
    about = facts.get("job") or facts.get("node") or facts.get("recurring_job") or {}
    return str(about.get("url", ""))


def _footer() -> str:
    return f"Change what is sent: {settings.PUBLIC_URL}/notifications"
