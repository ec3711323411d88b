"""Pricing oracle of the max-min dual: per job, the cheapest convex combination of two configurations for a rate.

At given prices of the GPU types, the cost of a rate is the lower convex hull of cost over rate of the configurations.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt

from allocation.solvers.presolve import compact_feasible
from allocation.types import Bools, Floats, Ints

_Number = TypeVar("_Number", np.float64, np.int64)

SAME = 1e-8
"""Relative difference below which rates and costs count as equal."""
NEGLIGIBLE = 1e-7
"""Rate, relative to the row's highest, below which a configuration is left out: no time there is worth counting."""
FREE = 1e-12
"""Cost, relative to the highest, below which a configuration counts as free."""
ROUNDING = 1e-13
"""Relative reduced cost below which a configuration does not count as cheaper."""
TIED = 1e-4
"""Relative cost difference up to which a configuration may be as cheap at the optimal prices."""
BLOCK = 4096
"""Rows at once, so that the arrays compared stay in the processor's cache."""
MOST_TURNS = 2
"""Pivots per column: with rounding errors, equal columns may cycle."""


@dataclass(frozen=True, eq=False)
class PricingOracle:
    """Pricing oracle of m rows with V feasible columns each, after idleness.

    names, rates (1 + V, m): the index of each column in (idle, configurations), and the rate of a row there; use
    (n, 1 + K) the part of the capacity of each type; count (m,) the jobs of a row. Infeasible columns are idle, too.
    """

    names: Ints
    rates: Floats
    use: Floats
    count: Ints

    @classmethod
    def of(cls, rate: Floats, use: Floats, count: Ints) -> Self:
        """Oracle for rate (m, K), 0 where infeasible, and use (n, K)."""
        names, rates = compact_feasible(np.where(rate < NEGLIGIBLE * rate.max(axis=1, keepdims=True), 0, rate))
        rates = _without_near_ties(rates)
        use = np.column_stack([np.zeros(len(use)), use])
        return cls(np.ascontiguousarray(names.T), np.ascontiguousarray(rates.T), use, count)

    def left_to(self, rows: Ints, left: Floats) -> Self:
        """Oracle of these rows with a part (n,) of each type; configurations on a type with 0 are infeasible."""
        there = left[:, None] > 0
        use = np.divide(self.use, left[:, None], out=np.zeros_like(self.use), where=there)
        possible = np.logical_not(((self.use > 0) & ~there).any(axis=0))
        names, rates = self.names.take(rows, axis=1), self.rates.take(rows, axis=1)
        return type(self)(names * possible[names], rates * possible[names], use, self.count[rows])

    @cached_property
    def most(self) -> Floats:
        """The highest rate (m,) of each row."""
        most: Floats = self.rates.max(axis=0)
        return most

    @cached_property
    def _fastest(self) -> Ints:
        fastest: Ints = self.rates.argmax(axis=0)
        return fastest

    def cheapest(self, prices: Floats, need: Floats, near: "PricedMix | None" = None) -> "PricedMix":
        """Cheapest mix for each required rate (m,) at these prices (n,), warm-started from a near mix.

        By the simplex method in each row: the column of the lowest reduced cost, below the line through the two mixed
        columns, replaces the one on its side of the required rate, until none is below.
        """
        cost = prices @ self.use
        low, high, moved = self._around(need, near)
        same_prices = near is not None and np.array_equal(near.cost, cost)
        rows, column = self._below(cost, low, high, np.flatnonzero(moved) if same_prices else None)
        for _ in range(MOST_TURNS * len(self.rates)):
            if not rows.size:
                break
            is_enough = self.rates[column, rows] >= need[rows]
            high[rows[is_enough]], low[rows[~is_enough]] = column[is_enough], column[~is_enough]
            rows, column = self._below(cost, low, high, rows)
        return PricedMix(self, prices, cost, need, low, high)

    def _around(self, need: Floats, near: "PricedMix | None") -> tuple[Ints, Ints, Bools]:
        """Columns (m,) below and above the required rate, and where they differ from those of the near mix."""
        i = np.arange(len(need))
        if near is None:
            return np.zeros_like(i), self._fastest.copy(), np.ones_like(i, dtype=np.bool_)
        short = near.high_rate < need
        over = (near.low_rate >= need) & (near.low > 0)
        low, high = near.low.copy(), near.high.copy()
        high[short], low[short] = self._fastest[short], near.high[short]
        high[over], low[over] = near.low[over], 0
        return low, high, short | over

    def _below(self, cost: Floats, low: Ints, high: Ints, rows: Ints | None) -> tuple[Ints, Ints]:
        """Rows, of these or of all, with a column of negative reduced cost, and the column of the lowest."""
        if rows is not None:
            names, rates = self.names.take(rows, axis=1), self.rates.take(rows, axis=1)
            below, column = _below_in(cost, low[rows], high[rows], names, rates)
            return rows[below], column
        found = list[tuple[Ints, Ints]]()
        for start in range(0, len(low), BLOCK):
            part = slice(start, start + BLOCK)
            names, rates = np.ascontiguousarray(self.names[:, part]), np.ascontiguousarray(self.rates[:, part])
            below, column = _below_in(cost, low[part], high[part], names, rates)
            found.append((start + below, column))
        return np.concatenate([rows for rows, _ in found]), np.concatenate([column for _, column in found])


def _without_near_ties(rates: Floats) -> Floats:
    """Snap rates (m, V) of a row that differ by less than `SAME`, relatively, to the lowest of them.

    Between two rates that differ by rounding errors alone the cost of a job would be discontinuous, and no level can be
    found at a discontinuity.
    """
    ascending = np.sort(rates, axis=1)
    rows = np.flatnonzero(_is_near(ascending[:, :-1], ascending[:, 1:]).any(axis=1))
    if not rows.size:
        return rates
    order, ascending, snapped = rates[rows].argsort(axis=1), ascending[rows], rates.copy()
    for v in range(1, rates.shape[1]):
        below, here = ascending[:, v - 1], ascending[:, v]
        ascending[:, v] = np.where(_is_near(below, here), below, here)
    snapped[rows[:, None], order] = ascending
    return snapped


def _is_near(below: Floats, above: Floats) -> Bools:
    return (above > below) & (above <= below * (1 + SAME))


def _below_in(cost: Floats, low: Ints, high: Ints, names: Ints, rates: Floats) -> tuple[Ints, Ints]:
    costs = cost[names]
    slope, start = line(picked(rates, low), picked(costs, low), picked(rates, high), picked(costs, high))
    costs -= slope * rates
    costs -= start
    i = np.arange(low.size)
    costs.ravel()[low * low.size + i] = costs.ravel()[high * low.size + i] = 0  # but for rounding
    below = np.flatnonzero(costs.min(axis=0) < -ROUNDING * cost.max())
    return below, costs[:, below].argmin(axis=0)


def picked(table: "npt.NDArray[_Number]", row: Ints) -> "npt.NDArray[_Number]":
    """Entries of a table (r, m), one row index per column (m,); flat indices are three times as fast."""
    return table.ravel().take(row * row.size + np.arange(row.size))


def line(rate: Floats, cost: Floats, higher_rate: Floats, its_cost: Floats) -> tuple[Floats, Floats]:
    """Slope and intercept (m,) of the lines of cost over rate through two points each."""
    width = higher_rate - rate
    slope = np.divide(its_cost - cost, width, out=np.zeros_like(width), where=width > 0)
    return slope, cost - slope * rate


@dataclass(frozen=True, eq=False)
class PricedMix:
    """Cheapest mix for required rates (m,) at a cost (1 + K,) per configuration: the columns `low` and `high` (m,)."""

    oracle: PricingOracle
    prices: Floats
    cost: Floats
    need: Floats
    low: Ints
    high: Ints

    @cached_property
    def low_rate(self) -> Floats:
        """Rate (m,) in the lower column."""
        return picked(self.oracle.rates, self.low)

    @cached_property
    def high_rate(self) -> Floats:
        """Rate (m,) in the higher column."""
        return picked(self.oracle.rates, self.high)

    def moved_to(self, need: Floats) -> "PricedMix":
        """Cheapest mix for other required rates, at the same prices."""
        return self.oracle.cheapest(self.prices, need, self)

    def expense(self, need: Floats) -> float:
        """Lower bound on the total cost of required rates, 1 being all capacity; exact at the rates of this mix."""
        return self._paid + float(self._growth @ (need - self.need))

    def cost_of_more(self, need: Floats, less: Floats) -> float:
        """Difference in total cost of two vectors of required rates, along the lines of this mix."""
        return float(self._growth @ (need - less))

    @cached_property
    def _names(self) -> tuple[Ints, Ints]:
        return picked(self.oracle.names, self.low), picked(self.oracle.names, self.high)

    @cached_property
    def _line(self) -> tuple[Floats, Floats]:
        low, high = self._names
        return line(self.low_rate, self.cost[low], self.high_rate, self.cost[high])

    @cached_property
    def _growth(self) -> Floats:
        growth: Floats = self.oracle.count * self._line[0]
        return growth

    @cached_property
    def _paid(self) -> float:
        """Total cost, reckoned from the higher column: from a rate of 0 a steep line would lose digits."""
        slope = self._line[0]
        return float(self.oracle.count @ (self.cost[self._names[1]] + slope * (self.need - self.high_rate)))

    def mix(self) -> "UnitMix":
        """The same mix as time per unit of rate, without prices."""
        width = self.high_rate - self.low_rate
        part = np.divide(self.need - self.low_rate, width, out=np.ones_like(width), where=width > 0)
        part = np.minimum(np.maximum(part, 0), 1)
        per_rate = np.divide(1, self.need, out=np.zeros_like(width), where=self.need > 0)
        low, high = self._names
        return UnitMix(self.oracle, low, high, (1 - part) * per_rate, part * per_rate)

    @cached_property
    def reach(self) -> Floats:
        """Highest rate (m,) that each row reaches at no more than its cost."""
        slope, start = self._line
        paid = (start + slope * self.need) * (1 + SAME) + FREE * self.cost.max()
        affordable = self.cost[self.oracle.names] <= paid
        reach: Floats = np.maximum(self.need, (self.oracle.rates * affordable).max(axis=0))
        return reach

    @cached_property
    def is_only_one(self) -> Bools:
        """Rows (m,) whose optimal mix is unique: no other column has a reduced cost of 0 (complementary slackness)."""
        i, names, rates = np.arange(len(self.need)), self.oracle.names, self.oracle.rates
        is_whole = self.need >= self.high_rate * (1 - SAME)
        slope = np.where(is_whole, (self._line[0] + self._next_slope) / 2, self._line[0])
        highest_level = self.cost[self._names[1]]
        dearer = self.cost[names] - highest_level - slope * (rates - self.high_rate)
        dearer[self.high, i] = np.inf
        dearer[self.low, i] = np.where(is_whole, dearer[self.low, i], np.inf)
        dearer[(names == 0) & (self._names[0] == 0) & ~is_whole] = np.inf
        only: Bools = dearer.min(axis=0) > TIED * highest_level + FREE * self.cost.max()
        return only

    @property
    def _next_slope(self) -> Floats:
        """Slope (m,) of the hull beyond the higher column; beyond the last column, a steeper one."""
        gain = self.oracle.rates - self.high_rate
        dearer = self.cost[self.oracle.names] - self.cost[self._names[1]]
        slope = np.divide(dearer, gain, out=np.full_like(gain, np.inf), where=gain > 0).min(axis=0)
        steeper = self._line[0] + self.cost.max() / np.maximum(self.high_rate, SAME)
        next_slope: Floats = np.minimum(slope, steeper)
        return next_slope


@dataclass(frozen=True, eq=False)
class UnitMix:
    """Mix of two configurations (m,), indices in (idle, configurations), as time in each per unit of rate."""

    oracle: PricingOracle
    low: Ints
    high: Ints
    low_time: Floats
    high_time: Floats

    def use_at(self, need: Floats) -> Floats:
        """Part of each type (n,) that required rates (m,) use."""
        jobs, names = self.oracle.count * need, self.oracle.use.shape[1]
        time = np.bincount(self.low, self.low_time * jobs, names) + np.bincount(self.high, self.high_time * jobs, names)
        used: Floats = self.oracle.use @ time
        return used

    def shares_at(self, need: Floats) -> Floats:
        """Shares (m, K) for required rates (m,)."""
        i, shares = np.arange(len(need)), np.zeros((len(need), self.oracle.use.shape[1]))
        shares[i, self.low] += self.low_time * need
        shares[i, self.high] += self.high_time * need
        return shares[:, 1:]
