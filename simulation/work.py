"""How jobs get on with what they are given: the truth, and what policies are told of it."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from allocation.arrays import Floats, Ints
from simulation.jobs import Jobs

NOTHING_LEFT = 1e-9
"""Of a job's steps: less than that is rounding, not work."""


class Work(Protocol):
    """The truth of how fast jobs are; rows are those of the trace."""

    def believed(self, rows: Ints) -> tuple[Floats, Ints]:
        """Steps/s (kinds, K) that policies are told, 0: it cannot run so; and which kind (m,) each job is of."""

    def most_gpus(self, rows: Ints) -> Floats:
        """GPUs (m,) on which jobs of the kind ever ran at most; inf: any number is thought safe."""

    def start(self, rows: Ints, configurations: Ints) -> None:
        """These jobs begin, or begin again, in these configurations."""

    def run(
        self, rows: Ints, configurations: Ints, left: Floats, seconds: Floats, mates: Ints
    ) -> tuple[Floats, Floats]:
        """Of the steps left, those done (m,) within so many seconds, and the seconds (m,) for which it is busy.

        mates (m,) are the jobs, rows of the trace, with whom these share their GPUs; -1: nobody.
        """


@dataclass(frozen=True, eq=False)
class FixedRates:
    """A configuration's rate is the same all the time, and everybody knows it."""

    jobs: Jobs
    whole_steps: bool = False
    """A job does whole steps, at least one, and stops after the last that it began in time."""

    def believed(self, rows: Ints) -> tuple[Floats, Ints]:
        return self.jobs.kind_rate, self.jobs.kind[rows]

    def most_gpus(self, rows: Ints) -> Floats:
        return np.full(len(rows), np.inf)

    def start(self, rows: Ints, configurations: Ints) -> None:
        """Nothing depends on it."""

    def run(
        self, rows: Ints, configurations: Ints, left: Floats, seconds: Floats, mates: Ints
    ) -> tuple[Floats, Floats]:
        kind, two = self.jobs.kind[rows], np.flatnonzero(mates >= 0)
        rate = self.jobs.kind_rate[kind, configurations]
        rate[two] = self.jobs.beside_rate[kind[two], self.jobs.kind[mates[two]], configurations[two]]
        steps = rate * seconds
        steps = np.maximum(np.floor(steps), 1) if self.whole_steps else steps
        done = steps >= left * (1 - NOTHING_LEFT)
        steps = np.where(done, left, steps)
        to_the_end = ~done & (not self.whole_steps)
        busy_s = np.where(to_the_end, seconds, steps / rate)
        if self.whole_steps and two.size:  # a pair ends with the later of its two, as it does in Gavel's simulator
            place = np.argsort(rows, kind="stable")
            busy_s[two] = np.maximum(busy_s[two], busy_s[place[np.searchsorted(rows, mates[two], sorter=place)]])
        return steps, busy_s
