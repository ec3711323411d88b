r"""Highest level that all jobs reach together: Lagrangian dual over prices of the GPU types, by cutting planes.

When job i needs the rate r_i(z) to be at level z,

.. math::
    \max_{X,\,z}\ z \quad\text{s.t.}\quad \textstyle \sum_k T_{ik} X_{ik} \ge r_i(z), \quad \sum_k X_{ik} \le 1, \quad
    \sum_i \sum_k \tfrac{u_{jk}}{c_j} X_{ik} \le 1, \quad X \ge 0

is separable but for one capacity row per GPU type. With prices y on the unit simplex, one for the whole capacity of
each type, the pricing oracle finds the cheapest mix for a rate of each job, and weak duality bounds the level:

.. math::
    \varphi_i(r; y) = \min_{X_i \ge 0} \{ y\,\tfrac{u}{c}\,X_i : T_i X_i \ge r,\ \textstyle\sum X_i \le 1 \}, \qquad
    \textstyle\sum_i \varphi_i(r_i(z); y) > 1 \ \Rightarrow\ z \text{ is out of reach}

The prices of the lowest bound are found by cutting planes: the oracle's mix at y uses a part of each type, and prices
that prove a lower bound must make that use cost more than 1. The dual of the last cutting-plane problem mixes the mixes
into shares that reach the bound. The same prices prove how far each job may still rise: as long as that costs nothing.

Cuts are stabilised by in-out separation: see `allocation.solvers.lagrangian_dual.separation_point`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy

from allocation.solvers.lagrangian_dual import separation_point
from allocation.solvers.linear_program import SolverFailed, maximize
from allocation.solvers.pricing_oracle import PricedMix, PricingOracle, UnitMix
from allocation.time_budget import UNLIMITED, TimeBudget
from allocation.types import Bools, Floats

RequiredRate = Callable[[float], Floats]
"""Level → the rate (m,) that each row requires; nondecreasing in the level, and 0 at level 0."""

TOLERANCE = 1e-8
SLIGHTLY = 1e-6
STEADY = 0.5
"""In-out separation: part of the way back from the suggested prices to the best ones."""
FORGOTTEN = 30
"""Cuts without a part in the mix after which a cut is dropped."""
MOST_CUTS = 400
MOST_STALLED = 60
"""Cuts without a better bound after which what is left of the gap, if it is `SLIGHTLY`, is rounding error."""


@dataclass(frozen=True, eq=False)
class MaxMinLevel:
    """Highest level of m rows: the priced mix that proves it, and the mix of mixes that reaches it."""

    level: float
    need: RequiredRate
    cheapest: PricedMix
    mix: tuple[tuple[float, UnitMix], ...]
    is_reached: bool
    """Whether the mix fits; if not, the time budget or the cuts were spent, and it exceeds the capacity."""

    @cached_property
    def rates(self) -> Floats:
        """Required rate (m,) at this level."""
        return self.need(self.level)

    @cached_property
    def shares(self) -> Floats:
        """Shares (m, K) that give just the required rates."""
        return np.asarray(sum(part * priced.shares_at(self.rates) for part, priced in self.mix))

    @cached_property
    def gains(self) -> Floats:
        """Gain of the level per whole capacity of each type (n,)."""
        below = self.level * (1 - SLIGHTLY)
        growth = self.cheapest.cost_of_more(self.rates, self.need(below))
        return self.cheapest.prices * ((self.level - below) / growth if self._is_tight and growth > 0 else 0.0)

    @cached_property
    def reach(self) -> Floats:
        """Rate (m,) that each row may still rise to without a type that is used up."""
        return np.maximum(self.rates, self.cheapest.reach) if self._is_tight else self.rates

    @property
    def _is_tight(self) -> bool:
        return self.cheapest.expense(self.rates) >= 1 - SLIGHTLY

    def left_by(self, some: Bools) -> Floats:
        """Part (n,) of each type that these rows leave to the others."""
        theirs, everyones = (self._used(self.rates * part) for part in (some, 1.0))
        left: Floats = np.maximum(everyones, 1) - theirs
        return left

    def _used(self, rates: Floats) -> Floats:
        return np.asarray(sum(part * priced.use_at(rates) for part, priced in self.mix))


def highest_level(
    oracle: PricingOracle, need: RequiredRate, low: float, high: float, *, budget: TimeBudget = UNLIMITED
) -> MaxMinLevel:
    """Highest level between two by cutting planes; the lower one is known to be reached, and if above 0 suffices.

    Raises
    ------
    SolverFailed
        The cutting planes did not close the gap of the lowest level.
    """
    search = _LevelCuts(oracle, need, low, high)
    for _ in range(MOST_CUTS):
        search.ask()
        if search.is_over or budget.passed():
            break
    else:
        if not low:
            raise SolverFailed(f"water filling: {MOST_CUTS} cuts left a gap of {search.overuse - 1:.2g}")
    return MaxMinLevel(search.level, need, search.cheapest, search.mix, search.is_over)


class _LevelCuts:
    """Cutting planes of the level: the lowest bound on it so far, and the mix that comes nearest to reach it."""

    def __init__(self, oracle: PricingOracle, need: RequiredRate, low: float, high: float) -> None:
        self._need, self._low, self.level = need, low, high
        n = len(oracle.use)
        self._suggested = np.full(n, 1 / n)
        self.cheapest = self._last = oracle.cheapest(self._suggested, need(high))
        self._cuts, self._proofs, self._stalled, self.overuse = list[_Cut](), 0, 0, np.inf

    @property
    def is_over(self) -> bool:
        """Whether the mix fits; at the lowest level it is known that one does."""
        may_improve = self.level > self._low and self._stalled < MOST_STALLED
        return self.overuse <= 1 + (TOLERANCE if may_improve else SLIGHTLY)

    @property
    def mix(self) -> tuple[tuple[float, UnitMix], ...]:
        return tuple((cut.part, cut.mix) for cut in self._cuts if cut.part > 0)

    def ask(self) -> None:
        """Add the cut at the next prices; it lowers the bound on the level, moves the suggested prices, or both."""
        priced = self._last.oracle.cheapest(self._next_prices(), self._need(self.level), self._last)
        level, self._last = proven(priced, self._need, self._low, self.level)
        fell = level < self.level
        if fell:
            self.level, self.cheapest = level, self._last
        self._proofs, self._stalled = self._proofs + fell, 0 if fell else self._stalled + 1
        self._cut(self._need(level), fell=fell)

    def _cut(self, needed: Floats, *, fell: bool) -> None:
        mix = self._last.mix()
        kept = [cut for cut in self._cuts if cut.idle < FORGOTTEN]
        self._cuts = [*(cut.at(needed) if fell else cut for cut in kept), _Cut(mix, mix.use_at(needed))]
        self._suggested, parts, self.overuse = dearest(np.array([cut.use for cut in self._cuts]))
        self._cuts = [cut.with_part(float(part)) for cut, part in zip(self._cuts, parts / parts.sum(), strict=True)]

    def _next_prices(self) -> Floats:
        """Point of in-out separation, on the unit simplex; before the first proof there are no best prices."""
        steady = STEADY if self._proofs else 0.0
        prices = separation_point(self.cheapest.prices, self._suggested, steady=steady, stalled=self._stalled)
        on_simplex: Floats = prices / prices.sum()
        return on_simplex


@dataclass(frozen=True, eq=False)
class _Cut:
    """Cut: a mix, its use (n,), its part in the best mix, and for how many cuts it had none."""

    mix: UnitMix
    use: Floats
    part: float = 0.0
    idle: int = 0

    def with_part(self, part: float) -> "_Cut":
        return replace(self, part=part, idle=0 if part > 0 else self.idle + 1)

    def at(self, needed: Floats) -> "_Cut":
        """The cut at lower required rates; one without a part keeps its use."""
        return replace(self, use=self.mix.use_at(needed)) if self.part > 0 else self


def proven(priced: PricedMix, need: RequiredRate, low: float, level: float) -> tuple[float, PricedMix]:
    """Lowest bound on the level that these prices prove, and the priced mix there."""
    while level > low and priced.expense(need(level)) > 1:
        lower = _out_of_reach(priced, need, low, level)
        if lower >= level:
            break
        level, priced = lower, priced.moved_to(need(lower))
    return level, priced


def _out_of_reach(priced: PricedMix, need: RequiredRate, low: float, high: float) -> float:
    """Bound on the level that the lines of this priced mix prove."""
    if priced.expense(need(low)) >= 1:
        return low
    return float(
        scipy.optimize.brentq(lambda z: priced.expense(need(z)) - 1, low, high, xtol=1e-300, rtol=1e-14, maxiter=300)
    )


def dearest(uses: Floats) -> tuple[Floats, Floats, float]:
    """Master problem: prices (n,) that maximise the cost of the cheapest use of (S, n); the mix (S,), and that cost."""
    S, n = uses.shape
    rows = np.block([[-uses, np.ones((S, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
    found = maximize(np.append(np.zeros(n), 1), rows, np.append(np.zeros(S), 1), tolerance=1e-10)
    return found.x[:-1], found.duals[:-1], found.value
