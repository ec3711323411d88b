r"""The highest level that all jobs can be at together, by prices of the GPU types.

When job i needs the rate r_i(z) to be at level z,

.. math::
    \max_{X,\,z}\ z \quad\text{s.t.}\quad \textstyle \sum_k T_{ik} X_{ik} \ge r_i(z), \quad \sum_k X_{ik} \le 1, \quad
    \sum_i \sum_k \tfrac{u_{jk}}{c_j} X_{ik} \le 1, \quad X \ge 0

is separable but for one row per GPU type. With prices y on the simplex, one for the whole capacity of each type, job i
alone finds the cheapest way to a rate, and weak duality bounds the level:

.. math::
    \varphi_i(r; y) = \min_{X_i \ge 0} \{ y\,\tfrac{u}{c}\,X_i : T_i X_i \ge r,\ \textstyle\sum X_i \le 1 \}, \qquad
    \textstyle\sum_i \varphi_i(r_i(z); y) > 1 \ \Rightarrow\ z \text{ is out of reach}

The prices that give the lowest bound are found by cutting planes: the jobs' answer at y uses so much of each type, and
prices that prove more must make that use dearer than 1. The dual of the last cut problem mixes the jobs' answers into
shares that reach the bound. The same prices prove how far each job may still rise: as long as that costs nothing.

Each cut is made between the best prices so far and those that the cuts suggest: see `allocation.in_out`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.optimize import brentq

from allocation.arrays import Bools, Floats
from allocation.deadline import NEVER, Deadline
from allocation.in_out import between
from allocation.solve import SolverFailed, maximize
from allocation.ways import Answer, Mix, Offers

Need = Callable[[float], Floats]
"""Level → the rate (m,) that each row needs to be there; never falls as it rises, and 0 at level 0."""

TOLERANCE = 1e-8
SLIGHTLY = 1e-6
STEADY = 0.5
"""So far back from the suggested prices to the best ones."""
FORGOTTEN = 30
"""After so many cuts in which an answer had no part in the mix it is let go."""
MOST_CUTS = 400


@dataclass(frozen=True, eq=False)
class Top:
    """The highest level of m rows: the answer that proves it, and the mix of answers that reaches it."""

    level: float
    need: Need
    cheapest: Answer
    mix: tuple[tuple[float, Mix], ...]
    is_reached: bool
    """Whether the mix fits; else time ran out, and it uses more than there is."""

    @cached_property
    def rates(self) -> Floats:
        """What each row (m,) needs here."""
        return self.need(self.level)

    @cached_property
    def shares(self) -> Floats:
        """Shares (m, K) that give just that."""
        return np.asarray(sum(part * answer.shares_at(self.rates) for part, answer in self.mix))

    @cached_property
    def gains(self) -> Floats:
        """By how much the level would rise for the whole capacity of each type (n,) once more."""
        below = self.level * (1 - SLIGHTLY)
        growth = self.cheapest.cost_of_more(self.rates, self.need(below))
        return self.cheapest.prices * ((self.level - below) / growth if self._is_tight and growth > 0 else 0.0)

    @cached_property
    def reach(self) -> Floats:
        """The rate (m,) that each row may still rise to: up to where it takes a type that is used up."""
        return np.maximum(self.rates, self.cheapest.reach) if self._is_tight else self.rates

    @property
    def _is_tight(self) -> bool:
        return self.cheapest.expense(self.rates) >= 1 - SLIGHTLY

    def left_by(self, some: Bools) -> Floats:
        """The part (n,) of each type that these rows leave to the others."""
        theirs, everyones = (self._used(self.rates * part) for part in (some, 1.0))
        left: Floats = np.maximum(everyones, 1) - theirs
        return left

    def _used(self, rates: Floats) -> Floats:
        return np.asarray(sum(part * answer.use_at(rates) for part, answer in self.mix))


def highest(offers: Offers, need: Need, low: float, high: float, *, deadline: Deadline = NEVER) -> Top:
    """The highest level between two, of which the lower is known to be reached.

    Raises
    ------
    SolverFailed
        The cutting planes did not close the gap.
    """
    search = _Search(offers, need, low, high)
    for _ in range(MOST_CUTS):
        search.ask()
        if search.is_over or deadline.passed():
            return Top(search.level, need, search.cheapest, search.mix, search.is_over)
    raise SolverFailed(f"water filling: {MOST_CUTS} cuts left a gap of {search.overuse - 1:.2g}")


class _Search:
    """The lowest level that is proven to be the most, and the mix of answers that comes nearest to reach it."""

    def __init__(self, offers: Offers, need: Need, low: float, high: float) -> None:
        self._need, self._low, self.level = need, low, high
        n = len(offers.use)
        self._suggested = np.full(n, 1 / n)
        self.cheapest = self._last = offers.cheapest(self._suggested, need(high))
        self._cuts, self._proofs, self._stalled, self.overuse = list[_Cut](), 0, 0, np.inf

    @property
    def is_over(self) -> bool:
        """Whether the mix fits; where nobody rises, it is known that one does."""
        return self.overuse <= 1 + (TOLERANCE if self.level > self._low else SLIGHTLY)

    @property
    def mix(self) -> tuple[tuple[float, Mix], ...]:
        return tuple((cut.part, cut.mix) for cut in self._cuts if cut.part > 0)

    def ask(self) -> None:
        """The answer at the next prices proves that some level is out of reach, or suggests others, or both."""
        answer = self._last.offers.cheapest(self._next_prices(), self._need(self.level), self._last)
        level, self._last = proven(answer, self._need, self._low, self.level)
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
        """Before anything is proven there are no best prices."""
        steady = STEADY if self._proofs else 0.0
        prices = between(self.cheapest.prices, self._suggested, steady=steady, stalled=self._stalled)
        on_simplex: Floats = prices / prices.sum()
        return on_simplex


@dataclass(frozen=True, eq=False)
class _Cut:
    """An answer, its use (n,), its part in the best mix, and for how many cuts it had none."""

    mix: Mix
    use: Floats
    part: float = 0.0
    idle: int = 0

    def with_part(self, part: float) -> "_Cut":
        return replace(self, part=part, idle=0 if part > 0 else self.idle + 1)

    def at(self, needed: Floats) -> "_Cut":
        """The same when less is needed; one that has no part may as well be taken to use what it did."""
        return replace(self, use=self.mix.use_at(needed)) if self.part > 0 else self


def proven(answer: Answer, need: Need, low: float, level: float) -> tuple[float, Answer]:
    """The level beyond which the prices of this answer prove that nobody gets, and the answer there."""
    while level > low and answer.expense(need(level)) > 1:
        lower = _out_of_reach(answer, need, low, level)
        if lower >= level:
            break
        level, answer = lower, answer.moved_to(need(lower))
    return level, answer


def _out_of_reach(answer: Answer, need: Need, low: float, high: float) -> float:
    """The level beyond which the lines of this answer prove that nobody gets."""
    if answer.expense(need(low)) >= 1:
        return low
    return float(brentq(lambda z: answer.expense(need(z)) - 1, low, high, xtol=1e-300, rtol=1e-14, maxiter=300))


def dearest(uses: Floats) -> tuple[Floats, Floats, float]:
    """Prices (n,) at which the cheapest of the answers, with uses (S, n), costs most; their mix (S,), and that cost."""
    S, n = uses.shape
    rows = np.block([[-uses, np.ones((S, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
    found = maximize(np.append(np.zeros(n), 1), rows, np.append(np.zeros(S), 1), tolerance=1e-10)
    return found.x[:-1], found.duals[:-1], found.value
