"""Queues: jobs are served in turn, each gets a configuration of what is left."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Self

import numpy as np

from allocation.arrays import Bools, Ints
from allocation.decision import Decision
from allocation.limits import Limits
from allocation.problem import Problem
from allocation.room import Room

Choose = Callable[[int, Sequence[int], Sequence[int]], int]
"""Row, the configurations that fit, and the GPUs (n,) left → the configuration that it gets."""

TOGETHER = 1024
"""So many rows are served before those that find nothing any more are left out."""


def serve(
    problem: Problem,
    turn: Ints,
    choose: Choose,
    *,
    keep: Bools,
    strict: bool,
    passable: bool = False,
    allowed: Bools | None = None,
) -> Decision:
    """Serve rows in turn, after those that keep what they hold; where it is strict, who fits nowhere stops the queue.

    Where it is also passable, GPUs that would hold him but are of no use to him are left to those behind.

    Nobody gets a configuration that is not `allowed` (m, K); all that he can use are, unless given.

    The objective is the number of jobs that run; prices are 0, for a queue has none; who is left is told of the last
    that was served before, or of the one that stops the queue.
    """
    began = perf_counter()
    line = _Line.after(problem, keep, choose, problem.rate > 0 if allowed is None else allowed)
    waiting = rest = turn[~keep[turn]]
    stopping = -1
    while rest.size and stopping < 0:
        few, fits = rest[:TOGETHER], np.flatnonzero(line.room.holds())
        finds = np.asarray(line.allowed[np.ix_(few, fits)].any(axis=1))
        stops = ~finds & ~(passable & np.isin(problem.base_gpus[few], problem.gpus[fits])) & strict
        places = np.flatnonzero(finds & ~np.logical_or.accumulate(stops))
        served = line.serve(few[places])
        if served < places.size:
            rest = rest[places[served - 1] + 1 :]
        else:
            stopping, rest = int(few[stops.argmax()]) if stops.any() else -1, rest[len(few) :]
    return Decision.of_picks(
        line.picks,
        prices=np.zeros(len(problem.capacity)),
        objective=float((line.picks >= 0).sum()),
        solve_seconds=perf_counter() - began,
        rival=_rivals(waiting, line.picks, stopping),
    )


@dataclass(frozen=True, eq=False)
class _Line:
    """What has been served so far: picks (m,), and the room that they leave."""

    choose: Choose
    allowed: Bools
    picks: Ints
    room: Room

    @classmethod
    def after(cls, problem: Problem, keep: Bools, choose: Choose, allowed: Bools) -> Self:
        line = cls(choose, allowed, np.where(keep, problem.held, -1), Room(problem, Limits.none(len(keep))))
        for i in np.flatnonzero(keep).tolist():
            line.room.take(i, int(line.picks[i]))
        return line

    def serve(self, rows: Ints) -> int:
        """Serve rows that all find something, while what fits now goes on to fit; give how many were served."""
        most, fits = self.room.still_open()
        row, column = (self.allowed[rows] & fits).nonzero()
        columns, ends, start = column.tolist(), np.bincount(row, minlength=len(rows)).cumsum().tolist(), 0
        for served, (i, end) in enumerate(zip(rows.tolist(), ends, strict=True), 1):
            k = self.choose(i, columns[start:end], self.room.free)
            start, self.picks[i] = end, k
            self.room.take(i, k)
            if not self.room.has(most):
                return served
        return len(rows)


def _rivals(waiting: Ints, picks: Ints, stopping: int) -> Ints:
    """For each row left, the last that was served before it, or the one that stops the queue, if one does."""
    stands = (picks[waiting] >= 0) | (waiting == stopping)
    last = np.maximum.accumulate(np.where(stands, np.arange(len(waiting)), -1))
    before = np.append(-1, last[:-1]) if last.size else last
    rival = np.full(len(picks), -1)
    rival[waiting] = np.where((before >= 0) & (picks[waiting] < 0), waiting[before], -1)
    return rival


def holds_something(problem: Problem) -> Bools:
    """Who (m,) holds a configuration that it may have."""
    held = np.take_along_axis(problem.rate, np.maximum(problem.held, 0)[:, None], axis=1)[:, 0]
    return np.asarray(problem.locked | ((problem.held >= 0) & (held > 0)))


def fastest(problem: Problem) -> Choose:
    """The configuration with the highest rate; of equals the one held, then the smallest."""
    gpus: list[int] = problem.gpus.tolist()

    def choose(i: int, fits: Sequence[int], _: Sequence[int]) -> int:
        rate, held = problem.rate[i], problem.held[i]
        return min(fits, key=lambda k: (-rate[k], k != held, gpus[k]))

    return choose


def roomiest(problem: Problem) -> Choose:
    """What is held, where it fits; else the smallest gang of the type with most GPUs left, blind to speed."""
    gpus: list[int] = problem.gpus.tolist()
    gpu_type: list[int] = problem.usage.argmax(axis=0).tolist()

    def choose(i: int, fits: Sequence[int], left: Sequence[int]) -> int:
        if (held := int(problem.held[i])) in fits:
            return held
        return min(fits, key=lambda k: (-left[gpu_type[k]], gpu_type[k], gpus[k]))

    return choose
