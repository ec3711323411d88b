"""What a rate costs a job at given prices of the GPU types: the cheapest mix of its configurations."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from allocation.arrays import Floats, Ints

SAME = 1e-8
"""Rates that differ by less, relatively, are one; a step that costs less, relative to the dearest, is free."""


@dataclass(frozen=True, eq=False)
class Offers:
    """What can be done at any prices: rate (m, K), use (n, K) as a fraction of each type, count (m,)."""

    rate: Floats
    use: Floats
    count: Ints

    @cached_property
    def most(self) -> Floats:
        """The highest rate (m,) of each job."""
        most: Floats = self.rate.max(axis=1)
        return most

    @cached_property
    def columns(self) -> Ints:
        """Idleness, 0, and then the columns (m, 1 + V) of (idle, configurations) in which a job can run."""
        valid = self.rate > 0
        first = np.argsort(~valid, axis=1, kind="stable")[:, : valid.sum(axis=1).max()]
        usable = np.where(np.take_along_axis(valid, first, axis=1), first + 1, 0)
        return np.column_stack([np.zeros_like(usable[:, 0]), usable])

    @cached_property
    def rates(self) -> Floats:
        """What it does in these."""
        padded = np.column_stack([np.zeros(len(self.rate)), self.rate])
        return np.take_along_axis(padded, self.columns, axis=1)

    def ways(self, prices: Floats) -> "Ways":
        """The corners of the lower convex hull of (rate, cost), idleness the first, found by gift wrapping."""
        cost = np.concatenate([[0.0], prices @ self.use])
        rates, costs = self.rates, cost[self.columns]
        at, everyone = np.zeros(len(rates), dtype=np.int64), np.arange(len(rates))
        corners = [at]
        while True:
            gain = rates - rates[everyone, at][:, None]
            dearer = costs - costs[everyone, at][:, None]
            slope = np.divide(dearer, gain, out=np.full_like(gain, np.inf), where=gain > 0)
            best = slope.argmin(axis=1)
            ahead = np.isfinite(slope[everyone, best])
            if not ahead.any():
                return Ways(self, prices, np.take_along_axis(self.columns, np.array(corners).T, axis=1), cost)
            at = np.where(ahead, best, at)
            corners.append(at)


@dataclass(frozen=True, eq=False)
class Ways:
    """At prices (n,), corners (m, H): columns of (idle, configurations), by rising rate; cost (K + 1,) of a column."""

    offers: Offers
    prices: Floats
    corners: Ints
    cost: Floats

    @cached_property
    def _rate(self) -> Floats:
        padded = np.column_stack([np.zeros(len(self.offers.rate)), self.offers.rate])
        rate: Floats = np.take_along_axis(padded, self.corners, axis=1)
        return rate

    @cached_property
    def _price(self) -> Floats:
        price: Floats = self.cost[self.corners]
        return price

    def to(self, need: Floats) -> "Answer":
        """How each job reaches its rate: between two neighbouring corners."""
        upper = np.clip((self._rate < need[:, None]).sum(axis=1), 1, max(self.corners.shape[1] - 1, 1))
        i = np.arange(len(need))
        low, high = self._rate[i, upper - 1], self._rate[i, upper]
        part = np.divide(need - low, high - low, out=np.ones_like(need), where=high > low)
        return Answer(self, need, upper, np.minimum(np.maximum(part, 0), 1))

    def expense(self, need: Floats) -> float:
        """What all pay together; 1 is all there is."""
        return float((self._count_times_slope * self._part_of_steps(need)).sum())

    def reach(self, need: Floats) -> Floats:
        """The rate (m,) up to which each job gets for what it pays at this need."""
        paid = self._paid(need)[:, None] + SAME * self.cost.max()
        last = (self._price <= paid).sum(axis=1) - 1
        reach: Floats = np.maximum(need, self._rate[np.arange(len(need)), last])
        return reach

    def _paid(self, need: Floats) -> Floats:
        paid: Floats = (self._slope * self._part_of_steps(need)).sum(axis=1)
        return paid

    def _part_of_steps(self, need: Floats) -> Floats:
        """How much of the rate between each two neighbouring corners (m, H - 1) is needed."""
        above: Floats = np.minimum(np.maximum(need[:, None] - self._rate[:, :-1], 0), self._width)
        return above

    @cached_property
    def _width(self) -> Floats:
        return np.diff(self._rate, axis=1)

    @cached_property
    def _slope(self) -> Floats:
        """The price of more rate between two neighbouring corners."""
        rise = np.diff(self._price, axis=1)
        return np.divide(rise, self._width, out=np.zeros_like(rise), where=self._width > 0)

    @cached_property
    def _count_times_slope(self) -> Floats:
        return self.offers.count[:, None] * self._slope


@dataclass(frozen=True, eq=False)
class Answer:
    """Each job's mix: `part` of its time at corner `upper`, the rest at the one before."""

    ways: Ways
    need: Floats
    upper: Ints
    part: Floats

    @cached_property
    def columns(self) -> tuple[Ints, Ints]:
        """The two columns (m,) that each job mixes, in (idle, configurations)."""
        i = np.arange(len(self.need))
        return self.ways.corners[i, self.upper - 1], self.ways.corners[i, self.upper]

    @cached_property
    def use(self) -> Floats:
        """The use (n, m) of each type by each row's jobs."""
        use = np.column_stack([np.zeros(len(self.ways.offers.use)), self.ways.offers.use])
        low, high = self.columns
        used: Floats = (use[:, low] * (1 - self.part) + use[:, high] * self.part) * self.ways.offers.count
        return used

    def use_at(self, need: Floats) -> Floats:
        """The use (n,) of each type when no more is needed than this (m,), of what this answer gives."""
        used: Floats = self.use @ self._part_of(need)
        return used

    def shares_at(self, need: Floats) -> Floats:
        """The shares (m, K) then."""
        i, enough = np.arange(len(need)), self._part_of(need)
        shares = np.zeros((len(need), len(self.ways.cost)))
        low, high = self.columns
        shares[i, low] += (1 - self.part) * enough
        shares[i, high] += self.part * enough
        return shares[:, 1:]

    def _part_of(self, need: Floats) -> Floats:
        part: Floats = np.divide(need, self.need, out=np.zeros_like(need), where=self.need > 0)
        return part
