"""Arrays of a trace in a simulation: what their tasks that have finished tell of the others, as in the service."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from allocation.types import Floats, Ints
from estimation.durations import DurationHistory, JobTraits, Sums
from estimation.estimate import Estimate
from estimation.task_sampling import ArrayTasks, TaskSample
from simulation.workloads.jobs import Jobs

NOT_SAMPLED = TaskSample(0, 0, Sums())


@dataclass(eq=False)
class SampledArrays:
    """Arrays by index: durations of their finished tasks, unfinished tasks, and what history said before the first.

    sampled: whether their tasks tell of each other; if not, history at the arrival is all that is known of an array.
    """

    jobs: Jobs
    lot: Ints
    sampled: bool
    ended: list[Sums]
    unfinished: Ints
    history: dict[int, Estimate | None] = field(default_factory=dict)
    told: dict[int, Estimate] = field(default_factory=dict)
    """What the pilots of an array said when enough of them had ended."""
    _known: dict[int, Estimate | None] = field(default_factory=dict)
    """Estimates since the last end of a task of each array."""

    @classmethod
    def of(cls, jobs: Jobs, *, sampled: bool = True, seed: int = 0) -> Self:
        """Before the first arrival; the seed draws pilots."""
        lot = np.random.default_rng(seed).permutation(len(jobs.names))
        tasks = np.bincount(jobs.array[jobs.array >= 0])
        return cls(jobs, lot, sampled, [Sums()] * len(tasks), tasks)

    @cached_property
    def tasks(self) -> list[int]:
        """Tasks of each array."""
        counts: list[int] = np.bincount(self.jobs.array[self.jobs.array >= 0]).tolist()
        return counts

    def note_finished(self, rows: Ints) -> Iterator[tuple[JobTraits, float]]:
        """Note the durations of these jobs; what they add to the history: of an array its mean, once it has ended."""
        for i in rows.tolist():
            array, seconds = int(self.jobs.array[i]), float(self.jobs.steps[i] / self.jobs.base_rate[i])
            if array >= 0:
                ended = self.ended[array] = self.ended[array].with_one(seconds, 1.0)
                self.unfinished[array] -= 1
                self._known.pop(array, None)
                seconds = ended.seconds / ended.n
            if array < 0 or not self.unfinished[array]:
                yield self.jobs.traits(i), seconds

    def estimate(self, row: int, history: DurationHistory) -> Estimate | None:
        """Duration of a job: of a task of an array as the finished ones tell, and history at the array's arrival."""
        array = int(self.jobs.array[row])
        if array < 0:
            return _from(history, self.jobs.traits(row))
        if array not in self._known:
            self._known[array] = self._of_task(array, row, history)
        return self._known[array]

    def _of_task(self, array: int, row: int, history: DurationHistory) -> Estimate | None:
        if array not in self.history:
            self.history[array] = _from(history, self.jobs.traits(row))
        sample, before = TaskSample(self.tasks[array], 0, self.ended[array]), self.history[array]
        if not self.sampled or not sample.is_sampled or (found := sample.estimate(before)) is None:
            return before
        self.told.setdefault(array, found)
        return found

    def columns(self, rows: Ints, held: Ints, left_gpu_s: Floats, total_gpu_s: Floats) -> dict[str, npt.ArrayLike]:
        """Columns of a problem about the arrays of these rows."""
        found, array = np.unique(self.jobs.array[rows], return_inverse=True)
        array = np.where(self.jobs.array[rows] < 0, -1, array - int((found < 0).any()))
        listed = found[found >= 0]
        inside = np.bincount(array[array >= 0], minlength=len(listed))
        running = np.bincount(array[(array >= 0) & (held >= 0)], minlength=len(listed))
        samples = self._samples(rows, listed, running.tolist())
        tasks = ArrayTasks(array, held < 0, self.lot[rows], samples, self.unfinished[listed] - inside)
        columns = tasks.columns(left_gpu_s, total_gpu_s)
        return {
            "array_others_gpu_s": columns.others_gpu_s,
            "pilot": columns.pilot,
            "unsampled": columns.unsampled,
        }

    def _samples(self, rows: Ints, arrays: Ints, running: Sequence[int]) -> list[TaskSample]:
        """Of arrays whose tasks declare their length nothing is sampled."""
        undeclared = set(self.jobs.array[rows[np.isinf(self.jobs.declared_steps[rows])]].tolist())
        return [
            TaskSample(self.tasks[array], busy, self.ended[array])
            if self.sampled and array in undeclared
            else NOT_SAMPLED
            for array, busy in zip(arrays.tolist(), running, strict=True)
        ]


def _from(history: DurationHistory, traits: JobTraits) -> Estimate | None:
    found = history.estimate(traits)
    return found.estimate if found else None
