"""What a rate costs a job at given prices of the GPU types: the cheapest mix of two of its configurations."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt

from allocation.arrays import Bools, Floats, Ints
from allocation.choices import possible

_Number = TypeVar("_Number", np.float64, np.int64)

SAME = 1e-8
"""Rates and costs that differ by less, relatively, are one."""
FREE = 1e-12
"""What costs less, relative to the dearest, costs nothing."""
ROUNDING = 1e-13
"""A configuration that is cheaper by less, relative to the dearest, is not."""
TIED = 1e-4
"""A configuration that is dearer by less, relatively, may be as good at the best prices."""
BLOCK = 4096
"""Rows at once, so that what is compared stays near the processor."""
MOST_TURNS = 2
"""So many times each column is tried: with rounding, equals may take turns for ever."""


@dataclass(frozen=True, eq=False)
class Offers:
    """What m rows can do: V columns each, after idleness, by name in (idle, configurations).

    names, rates (1 + V, m) are these and what a row does in them; use (n, 1 + K) a part of what there is of each type;
    count (m,) the jobs that a row stands for. What is not possible is one more idleness.
    """

    names: Ints
    rates: Floats
    use: Floats
    count: Ints

    @classmethod
    def of(cls, rate: Floats, use: Floats, count: Ints) -> Self:
        """From rate (m, K), 0 where it is impossible, and use (n, K)."""
        names, rates = possible(rate)
        use = np.column_stack([np.zeros(len(use)), use])
        return cls(np.ascontiguousarray(names.T), np.ascontiguousarray(rates.T), use, count)

    def left_to(self, rows: Ints, left: Floats) -> Self:
        """What these rows can do with a part (n,) of each type; where that is 0, with the other types alone."""
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

    def cheapest(self, prices: Floats, need: Floats, near: "Answer | None" = None) -> "Answer":
        """The cheapest mix for each rate (m,) at these prices (n,), found the faster the nearer another one is.

        By the simplex method in each row: a column below the line through the two that are mixed replaces that one of
        them on its side of the need, until there is none.
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
        return Answer(self, prices, cost, need, low, high)

    def _around(self, need: Floats, near: "Answer | None") -> tuple[Ints, Ints, Bools]:
        """Columns (m,) below and above the need, and where they are not those of the other answer."""
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
        """The rows of these, or of all, with a column below the line through two, and the lowest such column."""
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
    """What each column (m,) of a table (r, m) has in a row of its own, by flat indices: that is three times as fast."""
    return table.ravel().take(row * row.size + np.arange(row.size))


def line(rate: Floats, cost: Floats, higher_rate: Floats, its_cost: Floats) -> tuple[Floats, Floats]:
    """Slope and start (m,) of the lines of cost over rate through two points each."""
    width = higher_rate - rate
    slope = np.divide(its_cost - cost, width, out=np.zeros_like(width), where=width > 0)
    return slope, cost - slope * rate


@dataclass(frozen=True, eq=False)
class Answer:
    """For each need (m,), at a cost (1 + K,) of each configuration, the columns `low` and `high` (m,) to mix."""

    offers: Offers
    prices: Floats
    cost: Floats
    need: Floats
    low: Ints
    high: Ints

    @cached_property
    def low_rate(self) -> Floats:
        """What a row (m,) does in the lower column."""
        return picked(self.offers.rates, self.low)

    @cached_property
    def high_rate(self) -> Floats:
        """What a row (m,) does in the higher column."""
        return picked(self.offers.rates, self.high)

    def moved_to(self, need: Floats) -> "Answer":
        """The answer for another need, at the same prices."""
        return self.offers.cheapest(self.prices, need, self)

    def expense(self, need: Floats) -> float:
        """What all pay together, at least, 1 being all there is; just that where the need is this answer's own."""
        return self._start + float(self._growth @ need)

    def cost_of_more(self, need: Floats, less: Floats) -> float:
        """What the one need costs more than the other."""
        return float(self._growth @ (need - less))

    @cached_property
    def _names(self) -> tuple[Ints, Ints]:
        return picked(self.offers.names, self.low), picked(self.offers.names, self.high)

    @cached_property
    def _line(self) -> tuple[Floats, Floats]:
        low, high = self._names
        return line(self.low_rate, self.cost[low], self.high_rate, self.cost[high])

    @cached_property
    def _growth(self) -> Floats:
        growth: Floats = self.offers.count * self._line[0]
        return growth

    @cached_property
    def _start(self) -> float:
        return float(self.offers.count @ self._line[1])

    def mix(self) -> "Mix":
        """Who uses what, without what it costs."""
        width = self.high_rate - self.low_rate
        part = np.divide(self.need - self.low_rate, width, out=np.ones_like(width), where=width > 0)
        part = np.minimum(np.maximum(part, 0), 1)
        per_rate = np.divide(1, self.need, out=np.zeros_like(width), where=self.need > 0)
        low, high = self._names
        return Mix(self.offers, low, high, (1 - part) * per_rate, part * per_rate)

    @cached_property
    def reach(self) -> Floats:
        """The rate (m,) up to which each row gets for what it pays."""
        slope, start = self._line
        paid = (start + slope * self.need) * (1 + SAME) + FREE * self.cost.max()
        affordable = self.cost[self.offers.names] <= paid
        reach: Floats = np.maximum(self.need, (self.offers.rates * affordable).max(axis=0))
        return reach

    @cached_property
    def is_only_one(self) -> Bools:
        """Where (m,) no other mix costs as little."""
        i, names, rates = np.arange(len(self.need)), self.offers.names, self.offers.rates
        is_whole = self.need >= self.high_rate * (1 - SAME)
        slope = np.where(is_whole, (self._line[0] + self._next_slope) / 2, self._line[0])
        highest = self.cost[self._names[1]]
        dearer = self.cost[names] - highest - slope * (rates - self.high_rate)
        dearer[self.high, i] = np.inf
        dearer[self.low, i] = np.where(is_whole, dearer[self.low, i], np.inf)
        dearer[(names == 0) & (self._names[0] == 0) & ~is_whole] = np.inf
        only: Bools = dearer.min(axis=0) > TIED * highest + FREE * self.cost.max()
        return only

    @property
    def _next_slope(self) -> Floats:
        """The slope (m,) of the line from the higher column on; after the last one, some that is steeper."""
        gain = self.offers.rates - self.high_rate
        dearer = self.cost[self.offers.names] - self.cost[self._names[1]]
        slope = np.divide(dearer, gain, out=np.full_like(gain, np.inf), where=gain > 0).min(axis=0)
        steeper = self._line[0] + self.cost.max() / np.maximum(self.high_rate, SAME)
        next_slope: Floats = np.minimum(slope, steeper)
        return next_slope


@dataclass(frozen=True, eq=False)
class Mix:
    """Two configurations (m,), by name in (idle, configurations), and the time in each for a unit of rate."""

    offers: Offers
    low: Ints
    high: Ints
    low_time: Floats
    high_time: Floats

    def use_at(self, need: Floats) -> Floats:
        """The use (n,) of each type when so much (m,) is needed."""
        jobs, names = self.offers.count * need, self.offers.use.shape[1]
        time = np.bincount(self.low, self.low_time * jobs, names) + np.bincount(self.high, self.high_time * jobs, names)
        used: Floats = self.offers.use @ time
        return used

    def shares_at(self, need: Floats) -> Floats:
        """The shares (m, K) then."""
        i, shares = np.arange(len(need)), np.zeros((len(need), self.offers.use.shape[1]))
        shares[i, self.low] += self.low_time * need
        shares[i, self.high] += self.high_time * need
        return shares[:, 1:]
