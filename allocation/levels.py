r"""Water filling by prices: the lowest level rises until capacity stops it; then the next, of those it does not stop.

The highest common level, when job i needs the rate r_i(z) to be at level z,

.. math::
    \max_{X,\,z}\ z \quad\text{s.t.}\quad \textstyle\sum_k T_{ik} X_{ik} \ge r_i(z), \quad \sum_k X_{ik} \le 1, \quad
    \sum_i \sum_k \tfrac{u_{jk}}{c_j} X_{ik} \le 1, \quad X \ge 0

is separable but for one row per GPU type. With prices y on the simplex, one for the whole capacity of each type, job i
alone finds the cheapest way to a rate, and weak duality bounds the level:

.. math::
    \varphi_i(r; y) = \min_{X_i \ge 0} \{ y\,\tfrac{u}{c}\,X_i : T_i X_i \ge r,\ \textstyle\sum X_i \le 1 \}, \qquad
    \textstyle\sum_i \varphi_i(r_i(z); y) > 1 \ \Rightarrow\ z \text{ is out of reach}

The prices that give the lowest bound are found by cutting planes: the jobs' answer at y uses so much of each type, and
prices that prove more must make that use dearer than 1. The dual of the last cut problem mixes the jobs' answers into
shares that reach the bound. The same prices prove how far each job may still rise: as long as that costs nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter

import numpy as np
from scipy.optimize import brentq

from allocation.arrays import Floats, Ints
from allocation.classes import alike
from allocation.solve import SolverFailed, maximize
from allocation.ways import SAME, Answer, Offers, Ways

Need = Callable[[float], Floats | float]
"""Level → the rate (m,) that each job needs to be there, or one for all; never falls as it rises, and 0 at level 0."""
Due = Callable[[Floats], Callable[[float], Floats]]
"""The rate (m,) that each job can reach at most → the need, within that, of each.

Where less can be reached, nobody's need is less but of those who would need more than that.
"""

_Wanted = Callable[[float], Floats]

HAIR = 1e-9
"""Each level may use so much more than the one before, lest rounding stop those who need nothing of what is used up."""
TOLERANCE = 1e-8
SLIGHTLY = 1e-6
MOST_CUTS = 400


@dataclass(frozen=True, eq=False)
class Levels:
    """Shares (m, K); the lowest level that all reach, its bound, and its gain (n,) from one more GPU of each type."""

    shares: Floats
    level: float
    bound: float
    prices: Floats
    seconds: float


def fill_evenly(rate: Floats, usage: Ints, capacity: Ints) -> Levels:
    """Raise the level where it is the rate (m, K) itself; rows that are equal stand for one another."""
    kinds = alike(rate)
    one = rate[kinds.first]
    due = each_alone(lambda z: z)
    filled = fill_levels(one, usage, capacity, due, ceiling=one.max(axis=1), count=kinds.count)
    return replace(filled, shares=filled.shares[kinds.of_row])


def each_alone(need: Need) -> Due:
    """What a job cannot reach is not asked of it, and is nobody else's."""
    return lambda reach: lambda z: np.minimum(need(z), reach)


def fill_levels(rate: Floats, usage: Ints, capacity: Ints, due: Due, *, ceiling: Floats, count: Ints) -> Levels:
    """Raise everybody's level as far as it goes, the lowest first (lexicographic max-min).

    Parameters
    ----------
    rate, usage, capacity : (m, K) of each row's jobs, (n, K) GPUs, (n,) GPUs.
    due : what each can reach, even alone at first → level → (m,) rates.
    ceiling : (m,) the level at which a job needs all that it can do.
    count : (m,) jobs that each row stands for.

    Raises
    ------
    SolverFailed
        The cutting planes did not close the gap.
    """
    began = perf_counter()
    there = capacity > 0
    offers = Offers(rate, usage[there] / capacity[there, None], count)
    tops = _tops(offers, due, ceiling)
    lowest, prices = float(ceiling.min()), np.zeros(len(capacity))
    prices[there] = tops[0].prices / capacity[there]
    return Levels(
        shares=tops[-1].shares,
        level=min(tops[0].level / max(tops[-1].overuse, 1.0), lowest),
        bound=min(tops[0].level, lowest),
        prices=prices,
        seconds=perf_counter() - began,
    )


def _tops(offers: Offers, due: Due, ceiling: Floats) -> list["_Top"]:
    """One level after the other, each stopped by one more type; nobody is asked for what is out of his reach."""
    tops, reach, rising = list[_Top](), offers.most, np.ones(len(ceiling), dtype=np.bool_)
    while rising.any():
        low, high = tops[-1].level if tops else 0.0, float(ceiling[rising].max())
        top = _highest(offers, due(reach), low, high, budget=1 + HAIR * (1 + len(tops)))
        reach = np.minimum(reach, top.reach)
        still = reach > top.rates * (1 + SAME)
        rising = still if len(tops) < len(offers.use) else np.zeros_like(still)
        tops.append(top)
    return tops


def _highest(offers: Offers, need: _Wanted, low: float, high: float, *, budget: float) -> "_Top":
    """The highest level between two that this part of the capacity allows, by cutting planes."""
    level, answers, overuse = high, list[Answer](), np.inf
    ways = cheapest = offers.ways(np.full(len(offers.use), 1 / len(offers.use)))
    for _ in range(MOST_CUTS):
        if ways.expense(need(level)) > budget:
            level, cheapest = _out_of_reach(ways, need, low, level, budget), ways
        needed = need(level)
        answers.append(ways.to(needed))
        prices, mix, overuse = _dearest(np.array([answer.use_at(needed) for answer in answers]))
        if overuse <= budget + TOLERANCE:
            return _Top(level, need, cheapest, tuple(zip(mix / mix.sum(), answers, strict=True)), overuse)
        ways = offers.ways(prices)
    raise SolverFailed(f"water filling: {MOST_CUTS} cuts left a gap of {overuse - budget:.2g}")


def _out_of_reach(ways: Ways, need: _Wanted, low: float, high: float, budget: float) -> float:
    """The level beyond which these prices prove that nobody gets."""
    if ways.expense(need(low)) >= budget:
        return low
    return float(brentq(lambda z: ways.expense(need(z)) - budget, low, high, xtol=1e-300, rtol=1e-14, maxiter=300))


def _dearest(uses: Floats) -> tuple[Floats, Floats, float]:
    """Prices (n,) at which the cheapest of the answers, with uses (S, n), costs most; their mix (S,), and that cost."""
    S, n = uses.shape
    rows = np.block([[-uses, np.ones((S, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
    found = maximize(np.append(np.zeros(n), 1), rows, np.append(np.zeros(S), 1), tolerance=1e-10)
    return found.x[:-1], found.duals[:-1], found.value


@dataclass(frozen=True, eq=False)
class _Top:
    """The highest level: the prices that prove it, as `ways`, and the mix of answers that reaches it."""

    level: float
    need: _Wanted
    ways: Ways
    mix: tuple[tuple[float, Answer], ...]
    overuse: float
    """The part of the capacity that the mix uses; a little more than 1 is scaled away."""

    @cached_property
    def rates(self) -> Floats:
        """What each job (m,) needs here."""
        return self.need(self.level)

    @cached_property
    def shares(self) -> Floats:
        mixed = sum(part * answer.shares_at(self.rates) for part, answer in self.mix if part > 0)
        return np.asarray(mixed) / max(self.overuse, 1.0)

    @cached_property
    def prices(self) -> Floats:
        """By how much the level would rise for the whole capacity of each type (n,) once more."""
        below = self.level * (1 - SLIGHTLY)
        growth = self.ways.expense(self.rates) - self.ways.expense(self.need(below))
        return self.ways.prices * ((self.level - below) / growth if self._is_tight and growth > 0 else 0.0)

    @cached_property
    def reach(self) -> Floats:
        """The rate (m,) that each job may still rise to: up to where it takes a type that is used up."""
        return self.ways.reach(self.rates) if self._is_tight else self.rates

    @property
    def _is_tight(self) -> bool:
        return self.ways.expense(self.rates) >= 1 - SLIGHTLY
