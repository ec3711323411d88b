r"""Primal-dual admission at exponentially increasing prices, by beam search (Hadar).

.. math::
    y_j(\gamma) = L_j \left(\frac{U_j}{L_j}\right)^{\gamma_j / c_j}

An idle GPU costs next to nothing, the last one of a type as much as the highest value per GPU. Jobs are admitted one
after the other: each search state branches into one in which the job gets the configuration of the highest positive
payoff, value less price, and one in which it gets nothing. The beam keeps the few states of the highest total payoff;
a beam that drops none is the exact recursion.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from allocation.time_budget import UNLIMITED, TimeBudget
from allocation.types import Floats, Ints


@dataclass(frozen=True, eq=False)
class ExponentialPrices:
    """Prices per GPU (n,) that increase exponentially from least, all capacity free, to most, all of it assigned."""

    least: Floats
    most: Floats
    capacity: Ints

    @classmethod
    def free(cls, capacity: Ints) -> Self:
        """Prices of 0."""
        return cls(np.zeros(len(capacity)), np.zeros(len(capacity)), capacity)

    def at(self, left: Ints) -> Floats:
        """Prices (..., n) when so many GPUs are left."""
        prices: Floats = self.least * np.exp(self._growth * (1 - left / np.maximum(self.capacity, 1)))
        return prices

    @cached_property
    def _growth(self) -> Floats:
        ratio = np.divide(self.most, self.least, out=np.ones_like(self.most), where=self.least > 0)
        return np.log(ratio)


def admit(
    value: Floats,
    usage: Ints,
    left: Ints,
    pricing: ExponentialPrices,
    turn: Ints,
    *,
    beam: int,
    budget: TimeBudget = UNLIMITED,
) -> Ints:
    """Admit jobs by payoff at exponentially increasing prices; return the assignment (m,), -1 for none.

    Parameters
    ----------
    value : (m, K), of a configuration for a job; 0: infeasible.
    usage, left : (n, K) GPUs, and (n,) those that are not assigned yet.
    turn : rows in the order in which they are considered; others get nothing.
    beam : states kept after each job.
    budget : jobs that are not considered before it is spent get nothing.
    """
    states, steps = _States(pricing, left[None, :], np.zeros(1)), list[_Step]()
    for i in turn.tolist():
        columns = np.flatnonzero(value[i])
        step = states.offer(i, columns, value[i, columns], usage[:, columns].T, beam)
        if step is not None:
            steps.append(step)
            states = step.states
        if budget.passed() or not states.left.any():
            break
    return _traced(steps, len(value))


def _traced(steps: list["_Step"], jobs: int) -> Ints:
    """Assignment of the best state, traced back through the steps."""
    assignment, state = np.full(jobs, -1), 0
    for step in reversed(steps):
        assignment[step.row] = step.assignment[state]
        state = step.parents[state]
    return assignment


@dataclass(frozen=True, eq=False)
class _States:
    """S states of the beam, the best first: GPUs left (S, n), and total payoffs (S,) so far."""

    pricing: ExponentialPrices
    left: Ints
    payoff: Floats

    @cached_property
    def prices(self) -> Floats:
        return self.pricing.at(self.left)

    def offer(self, row: int, columns: Ints, value: Floats, usage: Ints, beam: int) -> "_Step | None":
        """Branch on one job, admitted or not, and keep the best states; None if its payoff is positive in no state.

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
        assignment = np.concatenate([np.full(len(best), -1), columns[best[takers]]])
        left = np.concatenate([self.left, self.left[takers] - usage[best[takers]]])
        total = np.concatenate([self.payoff, self.payoff[takers] + gain[takers]])
        kept = _best(total, left, beam)
        return _Step(row, parents[kept], assignment[kept], _States(self.pricing, left[kept], total[kept]))


@dataclass(frozen=True, eq=False)
class _Step:
    """States (S,) kept after a job: the parent of each, and the configuration of the job in it, -1 for none."""

    row: int
    parents: Ints
    assignment: Ints
    states: _States


def _best(total: Floats, left: Ints, beam: int) -> Ints:
    """Indices of the states of the highest total payoff; of those with the same GPUs left, one."""
    seen, kept = set[bytes](), list[int]()
    for state in np.argsort(-total, kind="stable").tolist():
        if (key := left[state].tobytes()) not in seen:
            seen.add(key)
            kept.append(state)
        if len(kept) == beam:
            break
    return np.array(kept)
