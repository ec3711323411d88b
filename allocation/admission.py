r"""Jobs are let in one after the other, at prices that grow as the GPUs of a type are given away (Hadar).

.. math::
    y_j(\gamma) = L_j \left(\frac{U_j}{L_j}\right)^{\gamma_j / c_j}

An idle GPU costs next to nothing, the last of a type as much as the most valuable job would give for it. At each job
the round parts in two, one in which the job gets what pays it best, if anything does, and one in which it gets nothing.
Of these states those few go on, the beam, in which payoffs sum to most; with a beam that drops none this is the whole
recursion.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from allocation.arrays import Floats, Ints
from allocation.deadline import NEVER, Deadline


@dataclass(frozen=True, eq=False)
class Tariff:
    """The price per GPU (n,) of each type: least when nothing of its capacity is given away, most when all is."""

    least: Floats
    most: Floats
    capacity: Ints

    @classmethod
    def free(cls, capacity: Ints) -> Self:
        """Everything costs nothing."""
        return cls(np.zeros(len(capacity)), np.zeros(len(capacity)), capacity)

    def at(self, left: Ints) -> Floats:
        """The prices (..., n) when so much is left."""
        prices: Floats = self.least * np.exp(self._growth * (1 - left / np.maximum(self.capacity, 1)))
        return prices

    @cached_property
    def _growth(self) -> Floats:
        ratio = np.divide(self.most, self.least, out=np.ones_like(self.most), where=self.least > 0)
        return np.log(ratio)


def admit(
    value: Floats, usage: Ints, left: Ints, tariff: Tariff, turn: Ints, *, beam: int, deadline: Deadline = NEVER
) -> Ints:
    """Give the picks (m,), -1 for none, where the payoffs of those who are let in sum to most.

    Parameters
    ----------
    value : (m, K), what a configuration is worth to a job; 0: not for it.
    usage, left : (n, K) GPUs, and (n,) those that are not given away yet.
    turn : rows in the order in which they are looked at; others get nothing.
    beam : how many states go on from each job.
    deadline : whoever is not looked at by then gets nothing.
    """
    states, steps = _States(tariff, left[None, :], np.zeros(1)), list[_Step]()
    for i in turn.tolist():
        columns = np.flatnonzero(value[i])
        step = states.offer(i, columns, value[i, columns], usage[:, columns].T, beam)
        if step is not None:
            steps.append(step)
            states = step.states
        if deadline.passed() or not states.left.any():
            break
    return _traced(steps, len(value))


def _traced(steps: list["_Step"], jobs: int) -> Ints:
    """What the best state came by."""
    picks, state = np.full(jobs, -1), 0
    for step in reversed(steps):
        picks[step.row] = step.picks[state]
        state = step.parents[state]
    return picks


@dataclass(frozen=True, eq=False)
class _States:
    """S ways in which the jobs so far were dealt with, the best first: GPUs left (S, n), and payoffs (S,) so far."""

    tariff: Tariff
    left: Ints
    payoff: Floats

    @cached_property
    def prices(self) -> Floats:
        return self.tariff.at(self.left)

    def offer(self, row: int, columns: Ints, value: Floats, usage: Ints, beam: int) -> "_Step | None":
        """Go on with the best states in which this job has its best configuration or none; None: it never has one.

        columns (V,), value (V,) and usage (V, n) are of the configurations that the job can use.
        """
        fits = (usage <= self.left[:, None, :]).all(axis=2)
        payoff = np.where(fits, value - self.prices @ usage.T, 0)
        best = payoff.argmax(axis=1)
        gain = payoff[np.arange(len(best)), best]
        takers = np.flatnonzero(gain > 0)
        if not takers.size:
            return None
        parents = np.concatenate([np.arange(len(best)), takers])
        picks = np.concatenate([np.full(len(best), -1), columns[best[takers]]])
        left = np.concatenate([self.left, self.left[takers] - usage[best[takers]]])
        total = np.concatenate([self.payoff, self.payoff[takers] + gain[takers]])
        kept = _best(total, left, beam)
        return _Step(row, parents[kept], picks[kept], _States(self.tariff, left[kept], total[kept]))


@dataclass(frozen=True, eq=False)
class _Step:
    """After a job, the states (S,) that go on: which each comes from, and what the job has in it, -1 for nothing."""

    row: int
    parents: Ints
    picks: Ints
    states: _States


def _best(total: Floats, left: Ints, beam: int) -> Ints:
    """The states that are worth most; of those that leave the same, one."""
    seen, kept = set[bytes](), list[int]()
    for state in np.argsort(-total, kind="stable").tolist():
        if (key := left[state].tobytes()) not in seen:
            seen.add(key)
            kept.append(state)
        if len(kept) == beam:
            break
    return np.array(kept)
