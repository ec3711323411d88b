r"""Separable problem with a least rate per job, for the Lagrangian dual: a job responds by a mix of two configurations.

.. math::
    \max_X\ \textstyle\sum_{ik} N_i b_{ik} X_{ik} \quad\text{s.t.}\quad
    \textstyle\sum_k T_{ik} X_{ik} \ge l_i, \quad \textstyle\sum_k X_{ik} \le 1, \quad
    \textstyle\sum_i N_i \sum_k u_{jk} X_{ik} \le c_j, \quad X \ge 0

At given prices y the program of one job has two rows, time and rate, so that one of its optima is a configuration that
is fast enough, or a mix of one that is and one that is not, at just the least rate: a point of the upper convex hull of
reduced value over rate. Idleness counts as a configuration. Mixes of such responses have the least rates, too; so the
restricted master problem of `allocation.solvers.lagrangian_dual` is feasible if its first response is.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt

from allocation.solvers.presolve import JobClasses, compact_feasible
from allocation.types import Bools, Floats, Ints

Number = TypeVar("Number", np.float64, np.int64, np.bool_)

ROUNDING = 1e-13
"""Relative reduced value above which a configuration counts as better."""
MOST_TURNS = 2
"""Pivots per column: with rounding errors, equal columns may cycle."""


@dataclass(frozen=True, eq=False)
class SparseShares:
    """Shares (m, K) as entries (e,): rows, columns, each pair at most once, and times."""

    rows: Ints
    columns: Ints
    times: Floats

    @classmethod
    def of(cls, shares: Floats) -> Self:
        """The positive entries of a dense array (m, K)."""
        rows, columns = shares.nonzero()
        return cls(rows, columns, shares[rows, columns])

    def added_to(self, shares: Floats, part: float) -> None:
        """Add a part of these shares to an array (m, K)."""
        shares[self.rows, self.columns] += part * self.times


@dataclass(frozen=True, eq=False)
class LeastRateProblem:
    """Value b and rate T (m, K), infeasible where T is 0; least rates l (m,), at most the row's highest rate; usage u
    (n, K), capacity c (n,), N (m,) jobs. The first response, start, has the least rates and fits.
    """

    value: Floats
    rate: Floats
    least: Floats
    usage: Ints
    capacity: Floats
    count: Ints
    start: SparseShares

    def best_at(self, prices: Floats) -> SparseShares:
        """Pricing: the mix of the highest reduced value of each row at these prices."""
        return self._shares(*self._mix(self._reduced(prices)))

    def weighted_sum(self, response: SparseShares) -> float:
        """Value of a response, summed over all jobs."""
        worth = self.count[response.rows] * self.value[response.rows, response.columns]
        return float(worth @ response.times)

    def used(self, response: SparseShares) -> Floats:
        """GPUs of each type (n,) that a response uses."""
        jobs = self.count[response.rows] * response.times
        return np.asarray(self.usage @ np.bincount(response.columns, jobs, self.usage.shape[1]), float)

    @cached_property
    def _possible(self) -> tuple[Ints, Floats]:
        """Feasible columns (m, 1 + V), after idleness, and their rates."""
        return compact_feasible(self.rate)

    @cached_property
    def _values(self) -> Floats:
        """Value (m, 1 + V) of the feasible columns."""
        padded = np.column_stack([np.zeros(len(self.value)), self.value])
        return np.take_along_axis(padded, self._possible[0], axis=1)

    @cached_property
    def _is_enough(self) -> Bools:
        enough: Bools = self._possible[1] >= self.least[:, None]
        return enough

    def _cost(self, prices: Floats) -> Floats:
        """Cost (m, 1 + V) of the feasible columns at these prices."""
        cost: Floats = np.append(0, prices @ self.usage).take(self._possible[0])
        return cost

    def _reduced(self, prices: Floats) -> Floats:
        return self._values - self._cost(prices)

    def _mix(self, gain: Floats) -> tuple[Ints, Ints, Floats]:
        """Columns (m,) of the best mix, one too slow and one fast enough, and the fraction of time in the latter.

        By the simplex method in each row: the column of the highest gain above the line through the two mixed ones
        replaces the one on its side of the least rate, until none is above.
        """
        high = np.where(self._is_enough, gain, -np.inf).argmax(axis=1)
        low = gain.argmax(axis=1)
        mixed = ~_at(self._is_enough, low)
        low[~mixed] = high[~mixed]
        rows = np.flatnonzero(mixed)
        for _ in range(MOST_TURNS * gain.shape[1]):
            if not rows.size:
                break
            rows, column = self._above(gain, low, high, rows)
            enough = self._is_enough[rows, column]
            high[rows[enough]], low[rows[~enough]] = column[enough], column[~enough]
        return low, high, self._part(low, high)

    def _above(self, gain: Floats, low: Ints, high: Ints, rows: Ints) -> tuple[Ints, Ints]:
        """Rows, of these, with a column above the line through the two mixed ones, and the highest such column."""
        rates, gains, low, high = self._possible[1][rows], gain[rows], low[rows], high[rows]
        gain_low, gain_here, rate_here = _at(gains, low), _at(gains, high), _at(rates, high)
        slope = (gain_low - gain_here) / (rate_here - _at(rates, low))
        rounding = ROUNDING * (np.abs(gain_low) + np.abs(gain_here) + slope * rate_here)
        rates *= slope[:, None]
        gains += rates
        column = gains.argmax(axis=1)
        above = np.flatnonzero(_at(gains, column) > gain_here + slope * rate_here + rounding)
        return rows[above], column[above]

    def _part(self, low: Ints, high: Ints) -> Floats:
        slow, fast = _at(self._possible[1], low), _at(self._possible[1], high)
        part = np.divide(self.least - slow, fast - slow, out=np.ones_like(slow), where=low != high)
        return np.minimum(np.maximum(part, 0), 1)

    def _shares(self, low: Ints, high: Ints, part: Floats) -> SparseShares:
        """Entries of the mixes, without idleness."""
        names, rows = self._possible[0], np.arange(low.size)
        columns = np.concatenate([_at(names, high), _at(names, low)]) - 1
        times = np.concatenate([part, np.where(low == high, 0, 1 - part)])
        used = np.flatnonzero((columns >= 0) & (times > 0))
        return SparseShares(np.concatenate([rows, rows])[used], columns[used], times[used])


@dataclass(frozen=True, eq=False)
class ShortfallProblem(LeastRateProblem):
    r"""Separable problem of the least shortfall: the value is the rate, in parts of what is wanted and capped by it.

    The best response has a rate up to the least one; reduced value is concave in it, so that it is just the least
    rate, or that of one configuration which is slower.
    """

    @classmethod
    def of(cls, part: Floats, usage: Ints, capacity: Floats, count: Ints) -> Self:
        """Problem of rates in parts (m, K) of what is wanted."""
        least = np.minimum(part.max(axis=1, initial=0), 1)
        return cls(part, part, least, usage, capacity, count, SparseShares.of(np.zeros_like(part)))

    def best_at(self, prices: Floats) -> SparseShares:
        """Pricing: the mix of the highest reduced value of each row, at the least rate or below it."""
        cost = self._cost(prices)
        low, high, part = self._mix(-cost)
        reached = self.least - (1 - part) * _at(cost, low) - part * _at(cost, high)
        slower = np.where(self._is_enough, -np.inf, self._values - cost)
        column = slower.argmax(axis=1)
        is_less = _at(slower, column) > reached
        low, high = np.where(is_less, column, low), np.where(is_less, column, high)
        return self._shares(low, high, np.where(is_less, 1.0, part))


def _at(table: "npt.NDArray[Number]", column: Ints) -> "npt.NDArray[Number]":
    """Entries of a table (m, V), one column index per row (m,); flat indices are three times as fast."""
    entries: npt.NDArray[Number] = table.ravel().take(np.arange(len(table)) * table.shape[1] + column)
    return entries


def deal(mix: tuple[tuple[float, SparseShares], ...], classes: JobClasses, configurations: int) -> Floats:
    """Shares (m, K) of the rows, by dealing the responses to the rows of a class: at most few rows mix several.

    Row j of a class of N has what lies between j/N and (j + 1)/N when the parts of the mix lie side by side; so all use
    together what the mix does.
    """
    N = classes.count[classes.of_row]
    begins, shares = _rank(classes) / N, np.zeros((len(N), configurations))
    to = 0.0
    for part, response in mix:
        at, to = to, to + part
        dealt = N * np.clip(np.minimum(to, begins + 1 / N) - np.maximum(at, begins), 0, None)
        whole = np.zeros((len(classes.first), configurations))
        response.added_to(whole, 1.0)
        shares += dealt[:, None] * whole[classes.of_row]
    return shares


def _rank(classes: JobClasses) -> Ints:
    """Position (m,) of each row within its class."""
    order, ends = np.argsort(classes.of_row, kind="stable"), np.cumsum(classes.count)
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size) - np.repeat(ends - classes.count, classes.count)
    return rank
