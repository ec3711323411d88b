r"""Lagrangian dual of the separable assignment problem, solved by cutting planes.

.. math::
    \max_X\ \textstyle\sum_{ik} N_i v_{ik} X_{ik} \quad\text{s.t.}\quad
    \textstyle\sum_k X_{ik} \le 1, \qquad \textstyle\sum_i N_i \sum_k u_{jk} X_{ik} \le c_j, \qquad X \ge 0

is separable but for one capacity row per GPU type. With a price y per GPU on these rows (Lagrangian relaxation) each
job takes the configuration of the highest reduced value, and weak duality bounds the value, of integer and of
fractional assignments alike:

.. math::
    h(y) = \textstyle\sum_i N_i \max\left(0,\ \max_k v_{ik} - y\,u_{\cdot k}\right) + y\,c
    \ \ge\ \text{the best value}, \qquad y \ge 0

The responses of the jobs at each price vector are a cutting plane below h. The next prices lie between the best so far
and the minimiser of the highest of these planes (in-out separation, a stabilisation: `separation_point`). The dual of
that small linear program mixes the responses into a fractional assignment that fits.
"""

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Protocol, TypeVar

import numpy as np

from allocation.solvers.linear_program import SolverFailed, maximize
from allocation.solvers.presolve import compact_feasible
from allocation.time_budget import UNLIMITED, TimeBudget
from allocation.types import Floats, Ints

MOST_CUTS = 400
STEADY = 0.7
"""In-out separation: part of the way back from the suggested prices to the best ones."""
FEW = 200
"""With so few jobs, cuts at the suggested prices themselves soon reach a vertex."""
PATIENCE = 40
"""Cuts without progress after which the suggested prices are used as they are."""
BLOCK = 2048
"""Rows at once, so that the arrays compared stay in the processor's cache."""

Response = TypeVar("Response")


class Blocks(Protocol[Response]):
    """Blocks of variables, one per job, that only capacity couples; a response is a solution of each block."""

    @property
    def capacity(self) -> Floats:
        """Capacity (n,) of each type."""

    @property
    def count(self) -> Ints:
        """Jobs (m,) of each block."""

    @property
    def start(self) -> Response:
        """A response within the capacity."""

    def best_at(self, prices: Floats) -> Response:
        """Pricing: the response of the highest reduced value at these prices (n,)."""

    def weighted_sum(self, response: Response, /) -> float:
        """Value of a response, not negative."""

    def used(self, response: Response, /) -> Floats:
        """GPUs (n,) of each type that a response uses."""


@dataclass(frozen=True, eq=False)
class SeparableProblem:
    """Assignment problem: value v (m, K), infeasible unless positive; usage u (n, K); capacity c (n,); N (m,) jobs.

    A response is a column (m,) per row of the arrays padded by one: column 0 is to have nothing.
    """

    value: Floats
    usage: Ints
    capacity: Floats
    count: Ints

    @cached_property
    def start(self) -> Ints:
        """Response to have nothing."""
        return np.zeros(len(self.value), dtype=np.int64)

    @cached_property
    def _rows(self) -> Ints:
        return np.arange(len(self.value))

    @cached_property
    def v(self) -> Floats:
        """Value (m, 1 + K); -inf where infeasible."""
        return np.column_stack([np.zeros(len(self.value)), np.where(self.value > 0, self.value, -np.inf)])

    @cached_property
    def u(self) -> Floats:
        """Usage (n, 1 + K)."""
        return np.column_stack([np.zeros(len(self.usage)), self.usage])

    @cached_property
    def _possible(self) -> tuple[Ints, Floats]:
        """Feasible columns (m, 1 + V) of each row, and their value (m, 1 + V)."""
        return compact_feasible(self.value)

    @cached_property
    def _is_open(self) -> bool:
        """Whether all columns are feasible for all rows."""
        return bool((self.value > 0).all())

    def best_at(self, prices: Floats) -> Ints:
        """Pricing: the column (m,) of the highest reduced value of each row at these prices."""
        cost, (names, v), is_all = prices @ self.u, self._possible, self._is_open
        best = np.empty(len(v), dtype=np.int64)
        for start in range(0, len(v), BLOCK):
            rows = slice(start, start + BLOCK)
            best[rows] = (v[rows] - (cost if is_all else cost[names[rows]])).argmax(axis=1)
        return best if is_all else names[self._rows, best]

    def weighted_sum(self, columns: Ints) -> float:
        """Value of a response, summed over all jobs."""
        return float(self.count @ self.v[self._rows, columns])

    def used(self, columns: Ints) -> Floats:
        """GPUs of each type (n,) that a response uses."""
        used: Floats = self.u @ np.bincount(columns, self.count, self.u.shape[1])
        return used


@dataclass(frozen=True, eq=False)
class DualSolution(Generic[Response]):
    """Best prices (n,), the dual bound, and the responses whose mix fits, each with its part."""

    prices: Floats
    bound: float
    mix: tuple[tuple[float, Response], ...]


def solve_dual(
    blocks: Blocks[Response], *, gap: float = 1e-6, budget: TimeBudget = UNLIMITED
) -> DualSolution[Response]:
    """Minimise the dual bound over prices, up to a relative gap or until the time budget or the cuts are spent."""
    search = CuttingPlanes(blocks)
    steady = STEADY if len(blocks.count) > FEW else 0.0
    with suppress(SolverFailed):  # the gap that is left then is the caller's to close
        for _ in range(MOST_CUTS):
            search.ask(separation_point(search.best, search.suggested, steady=steady, stalled=search.stalled))
            if search.is_within(gap) or budget.passed():
                break
    return search.found()


class CuttingPlanes(Generic[Response]):
    """Cutting planes of the dual: the best bound and prices so far, and the prices (n,) that the planes suggest."""

    def __init__(self, blocks: Blocks[Response]) -> None:
        n, start = len(blocks.capacity), blocks.start
        self._problem = blocks
        self._responses, self._intercepts = [start], [blocks.weighted_sum(start)]
        self._slopes = [blocks.capacity - blocks.used(start)]
        self.best, self.bound, self.stalled = np.zeros(n), np.inf, 0
        self.suggested, self._inventory = np.zeros(n), -np.inf
        self.mix = np.ones(1)
        """Part of each response in the mix that fits; the first is the start, the others are in order of time."""

    def ask(self, prices: Floats) -> None:
        """Add the cutting plane of these prices; it lowers the bound, moves the suggested prices, or both.

        Raises
        ------
        SolverFailed
            Rounding errors of the restricted master; the bound may be lower, and the mix is the one before.
        """
        response = self._problem.best_at(prices)
        intercepts = [*self._intercepts, self._problem.weighted_sum(response)]
        slopes = [*self._slopes, self._problem.capacity - self._problem.used(response)]
        here = intercepts[-1] + float(prices @ slopes[-1])
        self.stalled = 0 if here < self.bound else self.stalled + 1
        if here < self.bound:
            self.bound, self.best = here, prices
        self.suggested, self._inventory, self.mix = _lowest(np.array(intercepts), np.array(slopes))
        self._intercepts, self._slopes = intercepts, slopes
        self._responses.append(response)

    def is_within(self, gap: float) -> bool:
        """Whether the bound is within this relative gap of the lowest possible."""
        return self.bound - self._inventory <= gap * max(abs(self.bound), 1e-12)

    def found(self) -> DualSolution[Response]:
        """Solution so far; the unused part of the mix goes to the start."""
        mix = np.append(self.mix[0] + max(1 - self.mix.sum(), 0), self.mix[1:])
        parts = zip(mix, self._responses, strict=True)
        return DualSolution(
            self.best, self.bound, tuple((float(part), response) for part, response in parts if part > 0)
        )


def _lowest(intercepts: Floats, slopes: Floats) -> tuple[Floats, float, Floats]:
    """Minimise the maximum of the planes over prices (n,): minimiser, minimum, and the mix (S,) of planes tight there.

    Solved as its dual, the restricted master problem: the mix of the highest value that fits; its duals are the prices.
    """
    n, unit = slopes.shape[1], max(abs(intercepts).max(), 1e-300)
    rows = np.vstack([-slopes.T, np.ones(len(slopes))])
    found = maximize(intercepts / unit, rows, np.append(np.zeros(n), 1), tolerance=1e-10)
    return unit * found.duals[:n], unit * found.value, found.x


def separation_point(best: Floats, suggested: Floats, *, steady: float, stalled: int) -> Floats:
    """Point of in-out separation: prices (n,) between those suggested (steady 0) and the best so far (steady 1).

    A type without a suggested price has none here either. stalled counts the cuts since the bound last improved; after
    `PATIENCE` of them the suggested prices themselves are returned.
    """
    back = steady if stalled < PATIENCE else 0.0
    return np.where(suggested > 0, back * best + (1 - back) * suggested, 0)
