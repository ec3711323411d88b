"""Generated arrays: how many tasks each has, how long they take, and how they recur, by published statistics.

Arrays of one workload recur. The logarithm of an array's mean duration is that of its workload and a deviation of its
own, which history cannot know; that of a task's duration is the array's and a deviation of its own, which a sample
cannot know.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import inf, log
from typing import NamedTuple

import numpy as np
import scipy

from allocation.types import Floats, Ints
from simulation.traces.trace import Program, Trace, TraceJob


@dataclass(frozen=True, kw_only=True)
class ArrayStatistics:
    """Published statistics: jobs of a single task, tasks a job, and two quantiles of how long jobs run."""

    source: str
    single: float
    """Part of the jobs that have one task."""
    mean_tasks: float
    median_s: float
    high_s: float
    high: float
    """Part of the jobs that run no longer than high_s."""

    @cached_property
    def deviation(self) -> float:
        """Standard deviation of the logarithm of durations."""
        return log(self.high_s / self.median_s) / float(scipy.special.ndtri(self.high))

    def draw_tasks(self, jobs: int, most: int, rng: np.random.Generator) -> Ints:
        """Tasks of each job: one, or a power law from two to the most, with the published mean."""
        sizes = np.arange(2, most + 1)
        wide = (self.mean_tasks - self.single) / (1 - self.single)

        def share(power: float) -> Floats:
            weight = sizes**-power
            of_all: Floats = weight / weight.sum()
            return of_all

        power = scipy.optimize.brentq(lambda power: float(share(power) @ sizes) - wide, -1.0, 6.0)
        drawn = rng.choice(sizes, size=jobs, p=share(power))
        tasks: Ints = np.where(rng.random(jobs) < self.single, 1, drawn)
        return tasks


GOOGLE_2011 = ArrayStatistics(
    source="Reiss et al., SoCC 2012: Google's trace of 2011, 672,000 jobs of 25 million tasks",
    single=0.75,
    mean_tasks=25e6 / 672e3,
    median_s=180.0,
    high_s=7200.0,
    high=0.95,
)


@dataclass(frozen=True, kw_only=True)
class ArrayOptions:
    """A generated trace: arrays, the cluster's GPUs and its load, and the two spreads (of logarithms)."""

    arrays: int
    gpus: int
    load: float
    history_spread: float
    """Of arrays of one workload."""
    task_spread: float
    """Of tasks of one array."""
    workloads: int = 20
    most_tasks: int = 400
    longest_s: float = 86_400.0


class GeneratedArrays(NamedTuple):
    """Workload of each array, and the durations of its tasks in seconds."""

    workload: list[int]
    durations: list[Floats]

    def trace(self, options: ArrayOptions, rng: np.random.Generator) -> Trace:
        """Their tasks as a trace: those of an array arrive together, and none declares its length."""
        span_s = sum(float(of_array.sum()) for of_array in self.durations) / (options.gpus * options.load)
        arrivals = np.sort(rng.uniform(0, span_s, len(self.durations))).tolist()
        columns = zip(arrivals, self.workload, self.durations, strict=True)
        return Trace.of(
            job for i, (at, workload, of_array) in enumerate(columns) for job in _tasks(i, at, workload, of_array)
        )


def generate_arrays(
    statistics: ArrayStatistics, options: ArrayOptions, *, workloads: np.random.Generator, rng: np.random.Generator
) -> GeneratedArrays:
    """Generate arrays of workloads that the first generator draws: from an equal one, arrays of the same workloads.

    All deviations of the logarithms add up to the published one.
    """
    between = max(statistics.deviation**2 - options.history_spread**2 - options.task_spread**2, 0.0) ** 0.5
    of_workload = log(statistics.median_s) + between * workloads.standard_normal(options.workloads)
    tasks = statistics.draw_tasks(options.arrays, options.most_tasks, rng)
    workload = rng.integers(0, options.workloads, options.arrays)
    means = of_workload[workload] + options.history_spread * rng.standard_normal(options.arrays)
    durations = [
        np.clip(np.exp(mean + options.task_spread * rng.standard_normal(n)), 1.0, options.longest_s)
        for mean, n in zip(means.tolist(), tasks.tolist(), strict=True)
    ]
    return GeneratedArrays(workload.tolist(), durations)


def _tasks(array: int, arrival_s: float, workload: int, durations: Floats) -> Iterator[TraceJob]:
    for index, seconds in enumerate(durations.tolist()):
        yield TraceJob(
            name=f"{array}[{index}]",
            arrival_s=float(arrival_s),
            gangs=(1,),
            program=Program(workload_name(workload)),
            duration_s=seconds,
            declared_length=inf,
            team="all",
            array=str(array),
        )


def workload_name(workload: int) -> str:
    """A name that no other workload's is similar to: a history compares names."""
    return chr(ord("a") + workload) * 8
