"""Progress of jobs: their true rates, and the rates that policies are given."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from allocation.types import Floats, Ints
from simulation.clock.fastest_course import FastestCourse
from simulation.workloads.jobs import Jobs

NOTHING_LEFT = 1e-9
"""Fraction of a job's steps below which what remains is rounding error."""


class Work(Protocol):
    """Progress model: the true speed of jobs; rows are those of the trace."""

    def believed(self, rows: Ints) -> tuple[Floats, Ints]:
        """Rates (kinds, K) in steps/s that policies are given, 0 where impossible, and the kind (m,) of each job."""

    def most_replicas(self, rows: Ints) -> Floats:
        """Most replicas (m,) with which jobs of the kind ever ran; inf where there is no limit."""

    def told_restart_s(self, rows: Ints) -> Floats:
        """Seconds (m,) that policies take a restart for."""

    def start(self, rows: Ints, configurations: Ints) -> None:
        """Start or restart these jobs in these configurations."""

    def seconds_left(self, rows: Ints, configurations: Ints, left: Floats, mates: Ints) -> Floats:
        """Seconds (m,) in which these jobs would be done; inf: unknown."""

    def run(
        self, rows: Ints, configurations: Ints, left: Floats, seconds: Floats, mates: Ints
    ) -> tuple[Floats, Floats]:
        """Run for at most so many seconds; returns the steps done (m,) and the busy seconds (m,).

        mates (m,) are the jobs (rows of the trace) that share the GPUs, or -1.
        """

    def fastest(self) -> FastestCourse:
        """Fastest course of each job, alone on its GPUs."""


@dataclass(frozen=True, eq=False)
class FixedRates:
    """Constant rates, which policies know unless they are told others (kinds, K)."""

    jobs: Jobs
    whole_steps: bool = False
    """Jobs run whole steps, at least one, and stop after the last one that they began in time."""
    told: Floats | None = None

    def believed(self, rows: Ints) -> tuple[Floats, Ints]:
        return self.jobs.kind_rate if self.told is None else self.told, self.jobs.kind[rows]

    def most_replicas(self, rows: Ints) -> Floats:
        return np.full(len(rows), np.inf)

    def told_restart_s(self, rows: Ints) -> Floats:
        return self.jobs.told_restart_s[rows]

    def fastest(self) -> FastestCourse:
        return FastestCourse.of_constant(self.jobs.rate, self.jobs.steps)

    def start(self, rows: Ints, configurations: Ints) -> None:
        """Constant rates do not depend on starts."""

    def seconds_left(self, rows: Ints, configurations: Ints, left: Floats, mates: Ints) -> Floats:
        return left / self._rates(rows, configurations, mates)

    def _rates(self, rows: Ints, configurations: Ints, mates: Ints) -> Floats:
        kind, two = self.jobs.kind[rows], np.flatnonzero(mates >= 0)
        rate: Floats = self.jobs.kind_rate[kind, configurations]
        rate[two] = self.jobs.beside_rate[kind[two], self.jobs.kind[mates[two]], configurations[two]]
        return rate

    def run(
        self, rows: Ints, configurations: Ints, left: Floats, seconds: Floats, mates: Ints
    ) -> tuple[Floats, Floats]:
        rate, two = self._rates(rows, configurations, mates), np.flatnonzero(mates >= 0)
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
