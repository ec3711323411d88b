r"""Prices per GPU at which what jobs want fits: the dual of what they are worth together, by cutting planes.

.. math::
    \max_X\ \textstyle\sum_{ik} N_i v_{ik} X_{ik} \quad\text{s.t.}\quad
    \textstyle\sum_k X_{ik} \le 1, \qquad \textstyle\sum_i N_i \sum_k u_{jk} X_{ik} \le c_j, \qquad X \ge 0

is separable but for one row per GPU type. At prices y each job takes what is best for it alone, and weak duality bounds
the value, of whole and of divided jobs alike:

.. math::
    h(y) = \textstyle\sum_i N_i \max\left(0,\ \max_k v_{ik} - y\,u_{\cdot k}\right) + y\,c
    \ \ge\ \text{the best value}, \qquad y \ge 0

Each answer is a plane below h; the next prices lie between the best so far and those where the highest of these planes
is lowest (`allocation.in_out`). The dual of that small program mixes the answers into one that fits.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from allocation.arrays import Floats, Ints
from allocation.choices import possible
from allocation.deadline import NEVER, Deadline
from allocation.in_out import between
from allocation.solve import maximize

MOST_CUTS = 400
STEADY = 0.7
"""So far back from the suggested prices to the best ones."""
FEW = 200
"""With so few jobs, cuts at the suggested prices themselves soon end at a corner."""
BLOCK = 2048
"""Rows at once, so that what is compared stays near the processor."""


@dataclass(frozen=True, eq=False)
class Market:
    """Value v (m, K), not more than 0: not for that job; usage u (n, K), capacity c (n,), and N (m,) jobs a row.

    Answers are columns (m,) of the arrays padded by one: column 0 is to have nothing.
    """

    value: Floats
    usage: Ints
    capacity: Floats
    count: Ints

    @cached_property
    def v(self) -> Floats:
        """(m, 1 + K); -inf: not for this job."""
        return np.column_stack([np.zeros(len(self.value)), np.where(self.value > 0, self.value, -np.inf)])

    @cached_property
    def u(self) -> Floats:
        """(n, 1 + K)."""
        return np.column_stack([np.zeros(len(self.usage)), self.usage])

    @cached_property
    def _possible(self) -> tuple[Ints, Floats]:
        """The columns (m, 1 + V) that are for each job, and v (m, 1 + V) in them."""
        return possible(self.value)

    @cached_property
    def _is_open(self) -> bool:
        """Whether everything is for everybody."""
        return bool((self.value > 0).all())

    def best_at(self, prices: Floats) -> Ints:
        """What each job (m,) takes at these prices."""
        cost, (names, v), is_all = prices @ self.u, self._possible, self._is_open
        best = np.empty(len(v), dtype=np.int64)
        for start in range(0, len(v), BLOCK):
            rows = slice(start, start + BLOCK)
            best[rows] = (v[rows] - (cost if is_all else cost[names[rows]])).argmax(axis=1)
        return best if is_all else np.take_along_axis(names, best[:, None], axis=1)[:, 0]

    def worth(self, columns: Ints) -> float:
        return float(self.count @ np.take_along_axis(self.v, columns[:, None], axis=1)[:, 0])

    def used(self, columns: Ints) -> Floats:
        """GPUs of each type (n,)."""
        used: Floats = self.u @ np.bincount(columns, self.count, self.u.shape[1])
        return used


@dataclass(frozen=True, eq=False)
class Prices:
    """The prices (n,), the bound that they prove, and the answers with the part of each in the mix that fits."""

    prices: Floats
    bound: float
    mix: tuple[tuple[float, Ints], ...]


def best_prices(market: Market, *, gap: float = 1e-6, deadline: Deadline = NEVER) -> Prices:
    """The prices with the lowest bound, up to this gap, relative to it; or to as many cuts as there is time for."""
    search = Search(market)
    steady = STEADY if len(market.value) > FEW else 0.0
    for _ in range(MOST_CUTS):
        search.ask(between(search.best, search.suggested, steady=steady, stalled=search.stalled))
        if search.is_within(gap) or deadline.passed():
            break
    return search.found()


class Search:
    """The lowest bound so far, with the prices that prove it, and those (n,) that the answers so far suggest."""

    def __init__(self, market: Market) -> None:
        n, nothing = len(market.capacity), np.zeros(len(market.value), dtype=np.int64)
        self._market = market
        self._answers, self._offers, self._slopes = [nothing], [0.0], [market.capacity]
        self.best, self.bound, self.stalled = np.zeros(n), np.inf, 0
        self.suggested, self._floor = np.zeros(n), -np.inf
        self.mix = np.ones(1)
        """The part of each answer in what fits; the first is to have nothing, and then each at the prices asked."""

    def ask(self, prices: Floats) -> None:
        """The answer at these prices lowers the bound, or suggests others, or both."""
        answer = self._market.best_at(prices)
        self._answers.append(answer)
        self._offers.append(self._market.worth(answer))
        self._slopes.append(self._market.capacity - self._market.used(answer))
        here = self._offers[-1] + float(prices @ self._slopes[-1])
        self.stalled = 0 if here < self.bound else self.stalled + 1
        if here < self.bound:
            self.bound, self.best = here, prices
        self.suggested, self._floor, self.mix = _lowest(np.array(self._offers), np.array(self._slopes))

    def is_within(self, gap: float) -> bool:
        """Whether no prices prove a bound that is lower by more than this, relatively."""
        return self.bound - self._floor <= gap * max(abs(self.bound), 1e-12)

    def found(self) -> Prices:
        """What is not used counts as the answer to have nothing."""
        mix = np.append(self.mix[0] + max(1 - self.mix.sum(), 0), self.mix[1:])
        parts = zip(mix, self._answers, strict=True)
        return Prices(self.best, self.bound, tuple((float(part), answer) for part, answer in parts if part > 0))


def _lowest(offers: Floats, slopes: Floats) -> tuple[Floats, float, Floats]:
    """Where the highest of these planes over prices (n,) is lowest, how low, and the mix of those that meet there.

    Found as the mix (S,) that is worth most of those that fit: the prices are its duals.
    """
    n, unit = slopes.shape[1], max(abs(offers).max(), 1e-300)
    rows = np.vstack([-slopes.T, np.ones(len(slopes))])
    found = maximize(offers / unit, rows, np.append(np.zeros(n), 1), tolerance=1e-10)
    return unit * found.duals[:n], unit * found.value, found.x
