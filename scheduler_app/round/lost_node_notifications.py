"""Notifications of lost nodes: to owners and teams of the jobs there, and to administrators."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from django.conf import settings

from jobs_app.models import Attempt, GpuClaim, Job, NotificationTarget
from jobs_app.notifications.outbox import Announcement, read_jobs, write
from jobs_app.notifications.recipients import read_recipients

Event = NotificationTarget.Event


def announce_lost_nodes(nodes: Collection[str], now: datetime) -> None:
    """Write the notifications of nodes that are found lost now; call it in the transaction that records it."""
    if nodes and NotificationTarget.objects.exists():
        jobs = _jobs_on(nodes)
        of_jobs = _told(jobs)
        write(announcement for node in nodes for announcement in of_node(node, jobs[node], of_jobs, _staff(), now))


def of_node(
    node: str,
    jobs: Sequence[UUID],
    recipients: Mapping[UUID, Collection[int]],
    staff: Collection[int],
    now: datetime,
) -> Iterator[Announcement]:
    """Content for each target: the number of jobs on the node that it may see."""
    seen: dict[int, int] = dict.fromkeys(staff, len(jobs))
    for job in jobs:
        for target in recipients.get(job, ()):
            seen[target] = len(jobs) if target in staff else seen.get(target, 0) + 1
    about = {"name": node, "url": f"{settings.PUBLIC_URL}/nodes/{node}"}
    for target, count in seen.items():
        yield Announcement(target, Event.NODE_LOST, f"lost:{node}:{now.isoformat()}", {"node": about, "jobs": count})


def _jobs_on(nodes: Collection[str]) -> dict[str, list[UUID]]:
    """Jobs with live attempts on these nodes."""
    claims = GpuClaim.objects.open().filter(gpu__node__name__in=nodes).exclude(attempt__state=Attempt.State.ENDED)
    found: dict[str, list[UUID]] = defaultdict(list)
    for node, job in claims.order_by().values_list("gpu__node__name", "attempt__job").distinct():
        found[node].append(job)
    return found


def _told(jobs: Mapping[str, Sequence[UUID]]) -> dict[UUID, list[int]]:
    """Targets that subscribe to lost nodes, by job."""
    on_nodes = {job for of_node in jobs.values() for job in of_node}
    recipients = read_recipients(on_nodes)
    rows: Sequence[Job] = read_jobs(on_nodes) if recipients.targets else []
    return {job.pk: [one.pk for one in recipients.of(job) if Event.NODE_LOST in one.events] for job in rows}


def _staff() -> set[int]:
    """Targets of administrators, who are notified of every node."""
    rows = NotificationTarget.objects.filter(user__is_staff=True, user__is_active=True).values_list("pk", "events")
    return {pk for pk, events in rows if Event.NODE_LOST in events}
