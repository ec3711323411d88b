"""Water filling: the lowest level rises until capacity stops it; then the next, of those it does not stop.

Who cannot rise any more, and has no other way that costs as little at the prices that stop him, is settled: whatever
comes after, he uses just what he does. So each next level is found for fewer jobs, on what the settled ones leave.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from allocation.arrays import Bools, Floats, Ints
from allocation.classes import Kinds, alike
from allocation.deadline import NEVER, Deadline
from allocation.decision import Decision
from allocation.one_level import SLIGHTLY, Need, Top, highest
from allocation.pairs import Pairs
from allocation.solve import Status
from allocation.ways import SAME, Offers

Due = Callable[[Floats], Need]
"""The rate (m,) that each job can reach at most → the need, within that, of each.

Where less can be reached, nobody's need is less but of those who would need more than that.
"""

HAIR = 1e-9
"""Each level may use so much more than the one before, lest rounding stop those who need nothing of what is used up."""


@dataclass(frozen=True, eq=False)
class Levels:
    """Shares (m, K), and pairs if any; the lowest level that all reach, its bound, and its gain (n,) per GPU."""

    shares: Floats
    level: float
    bound: float
    prices: Floats
    seconds: float
    status: Status = Status.OPTIMAL
    pairs: Pairs | None = None

    @property
    def decision(self) -> Decision:
        """As of a policy whose objective is the level."""
        return Decision.of_shares(
            self.shares,
            prices=self.prices,
            objective=self.level,
            bound=self.bound,
            status=self.status,
            solve_seconds=self.seconds,
            pairs=self.pairs,
        )

    @property
    def inverse_decision(self) -> Decision:
        """As of a policy whose objective is 1 over the level: the least is best."""
        prices = self.prices / self.level**2
        return replace(self, level=1 / self.level, bound=1 / self.bound, prices=prices).decision


def fill_evenly(rate: Floats, usage: Ints, capacity: Ints, *, deadline: Deadline = NEVER) -> Levels:
    """Raise the level where it is the rate (m, K) itself; rows that are equal stand for one another."""
    kinds = alike(rate)
    one = rate[kinds.first]
    due, ceiling = each_alone(lambda z: z), one.max(axis=1)
    return fill_levels(one, usage, capacity, due, ceiling=ceiling, kinds=kinds, deadline=deadline)


def each_alone(need: Callable[[float], Floats | float]) -> Due:
    """What a job cannot reach is not asked of it, and is nobody else's."""
    return lambda reach: lambda z: np.minimum(need(z), reach)


def fill_levels(
    rate: Floats,
    usage: Ints,
    capacity: Ints,
    due: Due,
    *,
    ceiling: Floats,
    kinds: Kinds,
    deadline: Deadline = NEVER,
) -> Levels:
    """Raise everybody's level as far as it goes, the lowest first (lexicographic max-min).

    Parameters
    ----------
    rate, usage, capacity : (C, K) of each kind's jobs, (n, K) GPUs, (n,) GPUs.
    due : what each can reach, even alone at first → level → (C,) rates.
    ceiling : (C,) the level at which a job needs all that it can do.
    kinds : C kinds among m rows, each of which has the shares of its kind.
    deadline : what is reached by then counts, with the status `limit`.

    Raises
    ------
    SolverFailed
        The cutting planes did not close the gap of the lowest level.
    """
    began = perf_counter()
    there = capacity > 0
    offers = Offers.of(rate, usage[there] / capacity[there, None], kinds.count)
    tops, is_done = _tops(offers, due, ceiling, deadline)
    shares = np.zeros_like(rate)
    for rows, top in tops:
        shares[rows] = top.shares  # what follows is for those who are not settled yet
    overuse = max(float((usage[there] @ (kinds.count @ shares) / capacity[there]).max(initial=0)), 1.0)
    lowest = tops[0][1]
    bound, prices = min(lowest.level, float(ceiling.min())), np.zeros(len(capacity))
    prices[there] = lowest.gains / capacity[there]
    return Levels(
        shares=(shares / overuse)[kinds.of_row],
        level=bound / overuse,
        bound=bound,
        prices=prices,
        seconds=perf_counter() - began,
        status=Status.OPTIMAL if is_done else Status.LIMIT,
    )


def _tops(offers: Offers, due: Due, ceiling: Floats, deadline: Deadline) -> tuple[list[tuple[Ints, Top]], bool]:
    """The rows that are not settled, and their highest level, again and again; and whether all are settled in the end.

    Nobody is asked for what is out of his reach.
    """
    tops, low = list[tuple[Ints, Top]](), 0.0
    rows, reach, left = np.arange(len(ceiling)), offers.most, np.ones(len(offers.use))
    rising = np.ones(len(rows), dtype=np.bool_)
    while rising.any() and len(tops) <= len(left):
        need = _of(rows, due(reach))
        top = highest(offers.left_to(rows, left), need, low, float(ceiling[rows[rising]].max()), deadline=deadline)
        if tops and not top.is_reached:
            return tops, False
        tops.append((rows, top))
        if not top.is_reached:
            return tops, False
        rising = top.reach > top.rates * (1 + SAME)
        reach[rows] = np.where(rising, np.minimum(reach[rows], top.reach), top.rates)
        settled, left_of_it = _settled(top, rising)
        low, left, rows, rising = top.level, left * left_of_it, rows[~settled], rising[~settled]
    return tops, True


def _of(rows: Ints, need: Need) -> Need:
    return lambda z: need(z)[rows]


def _settled(top: Top, rising: Bools) -> tuple[Bools, Floats]:
    """Who cannot rise and could not be here in another way, and the part (n,) of each type that is left to the others.

    A type of which next to nothing is left is gone; who cannot do without it has what he has.
    """
    settled = ~rising & top.cheapest.is_only_one
    gone = top.left_by(settled) < SLIGHTLY
    without = top.cheapest.offers.left_to(np.arange(len(rising)), np.where(gone, 0.0, 1.0)).most
    settled |= without < top.rates * (1 - SAME)
    return settled, np.where(gone, 0.0, top.left_by(settled) + HAIR)
