"""Queue of a forecast: the jobs of a round and those that wait for others or for their array; and its front."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import numpy as np

from forecast.gates import Waits
from jobs_app.models import Job, JobDependency
from scheduler_app.round.inputs import InputRows, JobRow, read_job_rows

Needs = Mapping[UUID, frozenset[UUID]]
"""Jobs that wait for others → those that have not ended as it takes."""
MOST_JOBS = 2_000
"""Of a longer queue the front is played: a future of more jobs takes minutes."""


def read_needs() -> Needs:
    """Queued jobs that wait for others, and the parents whose condition is not fulfilled."""
    needs: dict[UUID, set[UUID]] = defaultdict(set)
    unmet = JobDependency.objects.unmet().filter(child__state=Job.State.QUEUED, child__held=False)
    for child, parent in unmet.values_list("child_id", "parent_id"):
        needs[child].add(parent)
    return {child: frozenset(parents) for child, parents in needs.items()}


def with_dependents(rows: InputRows, children: Collection[UUID]) -> list[JobRow]:
    """The jobs of the round and those that wait for others, which no round reads, in the order of submission."""
    if not children:
        return rows.jobs
    waiting = read_job_rows(Job.objects.filter(pk__in=children), rows.nodes, {})
    return sorted([*rows.jobs, *waiting], key=lambda job: job.id)


def front_of_queue(jobs: Sequence[JobRow], most: int, *, strict: bool) -> list[JobRow]:
    """All jobs that hold GPUs and the first of those that wait, as many as `most` in all, in the order of submission.

    First are those submitted first, or, where the queue is not strict, those that received least for their weight: the
    order in which futures fill GPUs that become free.
    """

    def turn(job: JobRow) -> tuple[bool, float, UUID]:
        return job.state == Job.State.QUEUED, 0.0 if strict else job.attained_gpu_s / job.weight, job.id

    holding = sum(job.state != Job.State.QUEUED for job in jobs)
    return sorted(sorted(jobs, key=turn)[: max(most, holding)], key=lambda job: job.id)


def startable(jobs: Sequence[JobRow], needs: Needs, now: datetime) -> frozenset[UUID]:
    """Waiting jobs that would start on free GPUs: they have a place in the queue, and others have not.

    Jobs that wait for others or for their begin time, and tasks beyond their array's limit at a time, would not.
    """
    able = [job for job in jobs if not needs.get(job.id) and (job.begin_time is None or job.begin_time <= now)]
    busy = Counter(job.array_id for job in able if job.state != Job.State.QUEUED)
    found = set()
    for job in sorted((job for job in able if job.state == Job.State.QUEUED), key=lambda job: job.id):
        if job.array_id is None or job.at_a_time is None or busy[job.array_id] < job.at_a_time:
            busy[job.array_id] += 1
            found.add(job.id)
    return frozenset(found)


def never_free(jobs: Collection[UUID], needs: Needs) -> set[UUID]:
    """Jobs that wait, directly or indirectly, for a job that is not among them."""
    free = set(jobs)
    while stuck := {job for job in free & needs.keys() if not needs[job] <= free}:
        free -= stuck
    return set(jobs) - free


def waits_of(jobs: Sequence[JobRow], needs: Needs) -> Waits:
    """Conditions other than GPUs that the jobs wait for, by row."""
    row_of = {job.id: row for row, job in enumerate(jobs)}
    limits = {job.array_id: job.at_a_time for job in jobs if job.array_id and job.at_a_time}
    number = {array: n for n, array in enumerate(limits)}
    return Waits(
        parents={row_of[job]: frozenset(row_of[one] for one in needs[job]) for job in row_of.keys() & needs.keys()},
        array=np.array([number.get(job.array_id, -1) if job.array_id else -1 for job in jobs], dtype=np.int64),
        at_a_time=np.array(list(limits.values()), dtype=np.int64),
    )
