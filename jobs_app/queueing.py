"""Writing admitted jobs into the queue."""

from collections.abc import Iterator, Sequence
from typing import Any

from django.db import transaction
from uuid_utils.compat import uuid7

from jobs_app.admission import Asked
from jobs_app.limits import note_of_weight
from jobs_app.models import Attempt, Job, JobArray, JobDependency, JobEvent, JobTag, Reason
from jobs_app.spec import spec_of

BATCH_SIZE = 500


@transaction.atomic
def enqueue(asked: Sequence[Asked]) -> list[Job]:
    """The jobs, in the order of what was asked; all of them or none."""
    jobs, needs = [], []
    for one in asked:
        for job in _jobs_of(one):
            waits = [JobDependency(child=job, parent_id=need["job"], on=need["on"]) for need in one.needs]
            _nothing_else_is_there(job, waits)
            jobs.append(job)
            needs += waits
    Job.objects.bulk_create(jobs, batch_size=BATCH_SIZE)
    JobDependency.objects.bulk_create(needs, batch_size=BATCH_SIZE)
    JobTag.objects.bulk_create([row for job in jobs for row in JobTag.rows_of(job.pk, job.tags)], batch_size=BATCH_SIZE)
    JobEvent.objects.bulk_create([_submitted(job) for job in jobs], batch_size=BATCH_SIZE)
    return jobs


def draft_spec(asked: Asked) -> dict[str, Any]:
    """The spec as it was understood; nothing is written."""
    job = Job(**asked.columns)
    _nothing_else_is_there(job, [JobDependency(parent_id=need["job"], on=need["on"]) for need in asked.needs])
    return spec_of(job) | ({"array": asked.array} if asked.array else {})


def _jobs_of(asked: Asked) -> Iterator[Job]:
    """One, or one for each index of the array."""
    reason = Reason.DEPENDENCY if asked.needs else Reason.NEXT_ROUND
    columns = asked.columns | {"reason": reason, "message": reason.label}
    if asked.array is None:
        yield Job(**columns, pk=asked.id)
        return
    array = JobArray.objects.create(**asked.array)
    for index in range(array.start, array.end + 1):
        yield Job(**columns, pk=asked.id if index == array.start else uuid7(), array=array, array_index=index)


def _nothing_else_is_there(job: Job, needs: list[JobDependency]) -> None:
    """The answer shows what was just written: it need not be read for that."""
    job._prefetched_objects_cache = {"attempts": Attempt.objects.none(), "needs": needs}  # type: ignore[attr-defined]


def _submitted(job: Job) -> JobEvent:
    return JobEvent(
        job=job, kind=JobEvent.Kind.SUBMITTED, actor=job.owner, message=note_of_weight(job.weight, job.team)
    )
