"""Greedy queues: jobs are served in order, each gets a configuration that still fits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Self

import numpy as np

from allocation.decision import Decision
from allocation.problem import Problem
from allocation.quotas import Quotas
from allocation.remaining_capacity import RemainingCapacity
from allocation.types import Bools, Ints

Choose = Callable[[int, Sequence[int], Sequence[int]], int]
"""Row, the configurations that fit, and the GPUs (n,) left → the configuration that the row gets."""

TOGETHER = 1024
"""Rows served before those for which nothing fits any more are dropped."""


def serve(
    problem: Problem,
    turn: Ints,
    choose: Choose,
    *,
    keep: Bools,
    strict: bool,
    passable: bool = False,
    allowed: Bools | None = None,
    queue: Ints | None = None,
) -> Decision:
    """Serve rows in order, after those that keep what they hold.

    strict: the first job that fits nowhere stops its queue; passable: but not where GPUs are left for its gang that it
    cannot use. Only `allowed` (m, K) configurations are assigned; those with a rate, unless given. queue (m,) says in
    which queue each row stands, any labels; all stand in one, unless given.

    The objective is the number of jobs that run; prices are 0, for a queue has none; the rival of a row left is the
    last one that was served before it, or the one that stops the queue.
    """
    began = perf_counter()
    line = _Line.after(problem, keep, choose, problem.rate > 0 if allowed is None else allowed)
    waiting = rest = turn[~keep[turn]]
    queue = np.zeros(len(keep), dtype=np.int64) if queue is None else queue
    stopping: list[int] = []
    while rest.size:
        few, fits = rest[:TOGETHER], np.flatnonzero(line.remaining.holds())
        finds = np.asarray(line.allowed[np.ix_(few, fits)].any(axis=1))
        stops = ~finds & ~(passable & np.isin(problem.base_gpus[few], problem.gpus[fits])) & strict
        places = np.flatnonzero(finds & ~np.logical_or.accumulate(stops))
        served = line.serve(few[places])
        if served < places.size:
            rest = rest[places[served - 1] + 1 :]
        elif stops.any():
            first = int(stops.argmax())
            stopping.append(int(few[first]))
            rest = rest[first + 1 :]
            rest = rest[queue[rest] != queue[few[first]]]
        else:
            rest = rest[len(few) :]
    return Decision.of_assignment(
        line.assignment,
        prices=np.zeros(len(problem.capacity)),
        objective=float((line.assignment >= 0).sum()),
        solve_seconds=perf_counter() - began,
        rival=_rivals(waiting, line.assignment, queue, stopping),
    )


@dataclass(frozen=True, eq=False)
class _Line:
    """Queue being served: assignment (m,) so far, and the capacity that is left."""

    choose: Choose
    allowed: Bools
    assignment: Ints
    remaining: RemainingCapacity

    @classmethod
    def after(cls, problem: Problem, keep: Bools, choose: Choose, allowed: Bools) -> Self:
        line = cls(
            choose, allowed, np.where(keep, problem.held, -1), RemainingCapacity(problem, Quotas.none(len(keep)))
        )
        for i in np.flatnonzero(keep).tolist():
            line.remaining.take(i, int(line.assignment[i]))
        return line

    def serve(self, rows: Ints) -> int:
        """Serve rows for which something fits, while all that fits now still fits; return how many were served."""
        most, fits = self.remaining.still_open()
        row, column = (self.allowed[rows] & fits).nonzero()
        columns, ends, start = column.tolist(), np.bincount(row, minlength=len(rows)).cumsum().tolist(), 0
        for served, (i, end) in enumerate(zip(rows.tolist(), ends, strict=True), 1):
            k = self.choose(i, columns[start:end], self.remaining.free)
            start, self.assignment[i] = end, k
            self.remaining.take(i, k)
            if not self.remaining.has(most):
                return served
        return len(rows)


def _rivals(waiting: Ints, assignment: Ints, queue: Ints, stopping: Sequence[int]) -> Ints:
    """Rival of each row left: the one that stops its queue, or the last one served before it; -1: none."""
    stands = (assignment[waiting] >= 0) | np.isin(waiting, stopping)
    last = np.maximum.accumulate(np.where(stands, np.arange(len(waiting)), -1))
    before = np.append(-1, last[:-1]) if last.size else last
    rival = np.full(len(assignment), -1)
    rival[waiting] = np.where((before >= 0) & (assignment[waiting] < 0), waiting[before], -1)
    for row in stopping:
        behind = waiting[np.flatnonzero(waiting == row)[0] + 1 :]
        rival[behind[(queue[behind] == queue[row]) & (assignment[behind] < 0)]] = row
    return rival


def holds_something(problem: Problem) -> Bools:
    """Jobs (m,) that hold a configuration with a rate, or are locked."""
    held = np.take_along_axis(problem.rate, np.maximum(problem.held, 0)[:, None], axis=1)[:, 0]
    return np.asarray(problem.locked | ((problem.held >= 0) & (held > 0)))


def fastest(problem: Problem) -> Choose:
    """Choose the configuration with the highest rate; of equals the one held, then the smallest."""
    gpus: list[int] = problem.gpus.tolist()

    def choose(i: int, fits: Sequence[int], _: Sequence[int]) -> int:
        rate, held = problem.rate[i], problem.held[i]
        return min(fits, key=lambda k: (-rate[k], k != held, gpus[k]))

    return choose


def roomiest(problem: Problem) -> Choose:
    """Choose the one held, where it fits; else the smallest gang of the type with most GPUs left, whatever its rate."""
    gpus: list[int] = problem.gpus.tolist()
    gpu_type: list[int] = problem.usage.argmax(axis=0).tolist()

    def choose(i: int, fits: Sequence[int], left: Sequence[int]) -> int:
        if (held := int(problem.held[i])) in fits:
            return held
        return min(fits, key=lambda k: (-left[gpu_type[k]], gpu_type[k], gpus[k]))

    return choose
