"""Arrays of a round: samples of each, the durations estimated from them, and which tasks are pilots."""

from collections import Counter
from collections.abc import Iterable, Sequence
from uuid import UUID
from zlib import crc32

import numpy as np

from accounting_app.durations.array_samples import ArraySample
from allocation.types import Bools
from estimation.durations import Basis, DurationEstimate, Sums
from estimation.task_sampling import ArrayTasks, TaskSample
from scheduler_app.round.inputs import InputRows, JobRow

NOT_SAMPLED = TaskSample(0, 0, Sums())
"""An array whose tasks tell their lengths."""


def sampled_durations(rows: InputRows) -> dict[UUID, DurationEstimate]:
    """Duration of a task of each array that is sampled."""
    sizes = {job.array_id: job.array_tasks for job in rows.jobs if job.array_id}
    found = ((array, duration_of(sizes.get(array) or 0, sample)) for array, sample in rows.array_samples.items())
    return {array: duration for array, duration in found if duration}


def duration_of(tasks: int, sample: ArraySample) -> DurationEstimate | None:
    """Duration of a task of an array of so many, if it is sampled."""
    of_tasks = TaskSample(tasks, 0, sample.ended)
    estimate = of_tasks.estimate(sample.history) if of_tasks.is_sampled else None
    return DurationEstimate(estimate, Basis.SAMPLED) if estimate else None


def array_tasks(rows: InputRows, jobs: Sequence[JobRow], waits: Bools) -> ArrayTasks:
    """The arrays of these jobs; waits (m,) says which of them hold no GPUs."""
    index: dict[UUID, int] = {}
    for job in jobs:
        if job.array_id:
            index.setdefault(job.array_id, len(index))
    inside, unfinished = Counter(job.array_id for job in jobs), rows.unfinished_in_arrays
    return ArrayTasks(
        array=np.array([index[job.array_id] if job.array_id else -1 for job in jobs], dtype=np.int64),
        waits=waits,
        lot=np.array([crc32(job.id.bytes) if job.array_id else 0 for job in jobs], dtype=np.int64),
        samples=_samples(rows, jobs, index),
        outside=np.array([max(unfinished.get(array, 0) - inside[array], 0) for array in index], dtype=np.int64),
    )


def _samples(rows: InputRows, jobs: Iterable[JobRow], arrays: Iterable[UUID]) -> list[TaskSample]:
    """Samples of each array: durations of its ended tasks."""
    sizes = {job.array_id: job.array_tasks or 0 for job in jobs if job.total_steps is None}
    none = ArraySample(Sums(), None)
    return [
        TaskSample(sizes[array], rows.busy_in_arrays.get(array, 0), rows.array_samples.get(array, none).ended)
        if array in sizes
        else NOT_SAMPLED
        for array in arrays
    ]
