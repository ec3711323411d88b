r"""Task sampling: the duration of an array's tasks, from the few that are run first ("learning in space", SLearn).

Of n tasks the pilots are run first. Once most of them have ended, after :math:`x_1, \dots, x_m` seconds, the duration
of each other task is taken for their mean, shrunk towards what jobs that ended before tell, on the logarithms:

.. math::
    \ln \hat x = \frac{\frac{m}{s^2} \ln \bar x + \frac{1}{s_h^2} \ln \mu_h}{\frac{m}{s^2} + \frac{1}{s_h^2}}

with s the spread of the tasks and :math:`s_h` that of the history with mean :math:`\mu_h`. The paper's two-level view
is the same in seconds; there the smaller of two means has the smaller deviation, and the shorter estimate would win.

The number of pilots follows the spread: as many as bring the relative standard error of the mean,
:math:`\frac{s}{\sqrt m} \sqrt{1 - \frac{m}{n}}`, to `PRECISION`, and 1 to 5 % of the tasks; 3 % before any has ended.
The paper searches among the same percentages by the completion times of the last hundred jobs, of which few clusters
have enough for a comparison.

References
----------
.. [1] Jajoo et al., NSDI 2022, "A Case for Task Sampling based Learning for Cluster Job Scheduling".
"""

from collections.abc import Sequence
from math import ceil, exp, log, sqrt
from typing import NamedTuple

import numpy as np

from estimation.durations import Sums
from estimation.estimate import Estimate
from estimation.scaling import Source
from estimation.types import Bools, Floats, Ints

FIRST_PART, LEAST_PART, MOST_PART = 0.03, 0.01, 0.05
"""Pilots over all tasks: before any has ended, and at least and at most."""
FEWEST_TASKS = 3
"""Arrays of fewer tasks are not sampled: a pilot would be a good part of them (the paper's thin limit)."""
ENOUGH = 0.8
"""Part of the pilots whose end is waited for; a straggler would hold back the whole array."""
PRECISION = 0.2
USUAL_SPREAD = 0.3
"""Of the logarithms of an array's durations; those of its tasks are drawn towards it by as much as one task would."""


class TaskSample(NamedTuple):
    """An array: its tasks in all, those that run, and sums over the durations of those that have ended."""

    tasks: int
    running: int
    ended: Sums

    @property
    def spread(self) -> float:
        """Standard deviation of the logarithms of its durations."""
        weight = self.ended.weight
        squares = max(self.ended.log_sqr - self.ended.log**2 / weight, 0.0) if weight else 0.0
        return sqrt((USUAL_SPREAD**2 + squares) / max(weight, 1))

    @property
    def pilots(self) -> int:
        """Number of tasks to run first; 0: too few tasks to sample."""
        if self.tasks < FEWEST_TASKS:
            return 0
        least, most = (max(ceil(part * self.tasks), 1) for part in (LEAST_PART, MOST_PART))
        if not self.ended.n:
            return max(ceil(FIRST_PART * self.tasks), 1)
        needed = self.spread**2 / (PRECISION**2 + self.spread**2 / self.tasks)
        return min(max(ceil(needed), least), most)

    @property
    def pilots_to_start(self) -> int:
        """Pilots that have neither ended nor run; 0: they are enough."""
        return 0 if self.is_sampled else max(self.pilots - self.ended.n - self.running, 0)

    @property
    def is_sampled(self) -> bool:
        """Whether enough pilots have ended, so that an estimate stands on them."""
        return 0 < ENOUGH * self.pilots <= self.ended.n

    def estimate(self, history: Estimate | None = None) -> Estimate | None:
        """Duration of a task that has not ended, in the unit of those that have; None before any has."""
        m, s = self.ended.n, self.spread
        if not m:
            return None
        mean = self.ended.seconds / m
        if history is not None and history.spread:
            own, prior = m / s**2, 1 / history.spread**2
            mean = exp((own * log(mean) + prior * log(history.mean)) / (own + prior))
        return Estimate(mean, s, Source.SAMPLED, m)


class ArrayColumns(NamedTuple):
    """Of m jobs: which are pilots, which wait for those, and what is left of the other tasks of each one's array.

    All (m,), the last in GPU-seconds; inf where it is not known, 0 for a job of no array.
    """

    pilot: Bools
    unsampled: Bools
    others_gpu_s: Floats


class ArrayTasks(NamedTuple):
    """Tasks of arrays among m jobs.

    array (m,) is the index of the job's array, -1: it is of none; waits (m,) says which jobs wait; lot (m,) is random;
    samples and outside, the unfinished tasks that are not among the jobs, are by array.
    """

    array: Ints
    waits: Bools
    lot: Ints
    samples: Sequence[TaskSample]
    outside: Ints

    def columns(self, left_gpu_s: Floats, total_gpu_s: Floats) -> ArrayColumns:
        """From what is left of each job (m,), and what it takes in all.

        Pilots are the tasks that run, and as many of those that wait as are missing, drawn by lot: tasks are often
        submitted by size.
        """
        unsampled = np.array([sample.pilots > 0 and not sample.is_sampled for sample in self.samples], dtype=np.bool_)
        missing = np.array([sample.pilots_to_start for sample in self.samples], dtype=np.int64)
        of_unsampled = (self.array >= 0) & np.append(unsampled, False)[self.array]
        drawn = self.waits & (self._place() < np.append(missing, 0)[self.array])
        pilot = of_unsampled & (drawn | ~self.waits)
        return ArrayColumns(pilot, of_unsampled & ~pilot, self._others(left_gpu_s, total_gpu_s))

    def _place(self) -> Ints:
        """Place (m,) of each waiting job among those of its array that wait, by lot."""
        order = np.lexsort((self.lot, self.array, ~self.waits))
        waiting = self.array[order][: self.waits.sum()]
        place = np.empty(len(self.array), dtype=np.int64)
        place[order] = np.arange(len(self.array)) - np.searchsorted(waiting, self.array[order])
        return place

    def _others(self, left_gpu_s: Floats, total_gpu_s: Floats) -> Floats:
        """What is left (m,) of each array but for the job itself; tasks that are not among the jobs are as the mean."""
        arrays, inside = len(self.outside), self.array >= 0
        left, total, jobs = (
            np.bincount(self.array[inside], weights[inside], minlength=arrays).astype(float)
            for weights in (left_gpu_s, total_gpu_s, np.ones(len(inside)))
        )
        each = np.divide(total, jobs, out=np.zeros(arrays), where=jobs > 0)
        left += np.where(self.outside > 0, each, 0) * self.outside
        of_array = np.append(left, 0)[self.array]
        known = inside & np.isfinite(of_array)
        return np.where(known, np.maximum(of_array - np.where(known, left_gpu_s, 0), 0), of_array)
