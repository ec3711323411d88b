"""Cancellation in bulk: of jobs that wait for a job which can no longer fulfil the condition, and of others."""

from collections.abc import Mapping
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from database.bulk_insert import insert_many
from database.bulk_update import rewrite
from jobs_app.measurement.counters import Count, tally
from jobs_app.models import Job, JobDependency, JobEvent, Metric, Reason
from jobs_app.notifications.outbox import announce_ends

PER_TRANSACTION = 1000
GENERATIONS_PER_CALL = 20
"""A cancelled job may be the dependency of others; a longer chain goes on at the next call, so that none takes long."""


def settle_dependencies() -> None:
    """Cancel the queued jobs whose dependency has failed, and those that depend on them."""
    for _ in range(GENERATIONS_PER_CALL):
        if not (_failed().exists() and _cancel_some()):
            break


def _failed() -> QuerySet[JobDependency]:
    """Failed dependencies of jobs that still wait in the queue."""
    return JobDependency.objects.broken().filter(child__state=Job.State.QUEUED)


@transaction.atomic
def _cancel_some() -> int:
    """Cancel up to `PER_TRANSACTION` jobs by an UPDATE under row locks; a job that has left the queue is skipped."""
    broken = _failed().select_related("parent").order_by("-pk")
    failed = {need.child_id: _what_happened_to(need.parent) for need in broken[:PER_TRANSACTION]}
    return cancel_queued(failed, Reason.DEPENDENCY_FAILED)


def cancel_queued(messages: Mapping[UUID, str], reason: Reason) -> int:
    """Cancel those of up to `PER_TRANSACTION` jobs that still wait in the queue; call it inside a transaction."""
    queued = Job.objects.select_for_update().filter(pk__in=messages, state=Job.State.QUEUED).order_by("pk")
    why, now = {pk: messages[pk] for pk in queued.values_list("pk", flat=True)}, timezone.now()
    rewrite(
        Job,
        ("state", "held", "reason", "message", "reasons", "finished_at"),
        {pk: (Job.State.CANCELLED, False, reason, text, [], now) for pk, text in why.items()},
    )
    events = [
        {"job_id": pk, "kind": JobEvent.Kind.FINISHED, "message": f"{reason.label}: {text}"[:500]}
        for pk, text in why.items()
    ]
    insert_many(JobEvent, events)
    announce_ends(why)
    if why:
        tally(Count(Metric.JOBS_FINISHED, Job.State.CANCELLED, len(why)))
    return len(why)


def _what_happened_to(parent: Job) -> str:
    was = "was " if parent.state == Job.State.CANCELLED else ""
    return f"{parent} {was}{parent.get_state_display()}"
