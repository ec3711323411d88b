r"""One configuration per job, worth most together: an integer program, by prices and, if these leave a gap, HiGHS.

.. math::
    \max_{X \in \{0,1\}}\ \textstyle\sum_{ik} v_{ik} X_{ik} \quad\text{s.t.}\quad
    \textstyle\sum_k X_{ik} \le 1, \qquad \textstyle\sum_i \sum_k u_{jk} X_{ik} \le c_j

The prices of `allocation.prices` bound the value. What jobs take at these prices, made to fit and filled up, is a
certified distance from the bound.
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from scipy.sparse import csr_array, vstack

from allocation.arrays import Floats, Ints
from allocation.deadline import NEVER, Deadline
from allocation.prices import Market, best_prices
from allocation.solve import SolverFailed, Status, maximize

SMALL = 200
"""So many jobs HiGHS solves to the end in a few hundredths of a second."""
MOST_CHOICES = 200_000
"""With more, HiGHS thinks for minutes before it looks at its time limit."""
GOLDEN = (5**0.5 - 1) / 2
"""Its multiples, less what is whole, are spread evenly, however many there are."""
EXACT = 1e-9
"""As near to the bound, relatively, as rounding lets one prove."""


@dataclass(frozen=True, eq=False)
class Picks:
    """picks (m,), a configuration or -1 for none; their value, the bound on it, and prices (n,) per GPU."""

    picks: Ints
    value: float
    bound: float
    prices: Floats
    seconds: float
    status: Status


def best_picks(
    value: Floats,
    usage: Ints,
    capacity: Ints,
    *,
    gap: float,
    objective: Callable[[float], float] = float,
    deadline: Deadline = NEVER,
) -> Picks:
    """Pick within the gap, relative to the objective.

    Parameters
    ----------
    value : v (m, K), what a configuration is worth to a job; not more than 0: not for it.
    usage, capacity : u (n, K) and c (n,) GPUs.
    objective : the value → what the gap is relative to; the value itself, unless given.
    deadline : when it comes before the gap is reached, the answer by prices counts, with the status `limit`.
    """
    began = perf_counter()
    there = ~(usage[capacity <= 0] > 0).any(axis=0)
    market = Market(value * there, usage, capacity.astype(float), np.ones(len(value), dtype=np.int64))
    priced = best_prices(market, deadline=deadline)
    columns, status = _filled(market, market.best_at(priced.prices), priced.prices), Status.OPTIMAL
    bound, near = priced.bound, EXACT if len(value) <= SMALL else gap
    if len(value) > SMALL and bound - market.worth(columns) > near * abs(objective(market.worth(columns))):
        columns = max(columns, _filled(market, _dealt(priced.mix), priced.prices), key=market.worth)
    worth = market.worth(columns)
    if bound - worth > near * abs(objective(worth)):
        relative = gap * abs(objective(worth)) / max(worth, 1e-300)
        columns, bound, status = _settled(market, columns, bound, gap=relative, deadline=deadline)
    worth = market.worth(columns)
    prices = priced.prices if there.all() else _with_those_of_none(market, value, priced.prices)
    return Picks(columns - 1, worth, max(bound, worth), prices, perf_counter() - began, status)


def _with_those_of_none(market: Market, value: Floats, prices: Floats) -> Floats:
    """The same prices, and of types of which nothing is left the least at which nobody would have them instead.

    The search for the others goes without these: it would find one more who would by each of hundreds of cuts.
    """
    prices, u = np.where(market.capacity > 0, prices, 0.0), market.u[:, 1:]
    columns = market.best_at(prices)
    surplus = np.take_along_axis(market.v, columns[:, None], axis=1)[:, 0] - prices @ market.u[:, columns]
    for j in np.flatnonzero(market.capacity <= 0):
        asked = u[j] > 0
        more = np.where(value[:, asked] > 0, value[:, asked] - surplus[:, None] - prices @ u[:, asked], 0)
        prices[j] = (more / u[j, asked]).max(initial=0)
    return prices


def _settled(
    market: Market, columns: Ints, bound: float, *, gap: float, deadline: Deadline
) -> tuple[Ints, float, Status]:
    """The better of this answer and what HiGHS finds, the bound, and whether the gap was reached."""
    if deadline.passed() or np.count_nonzero(market.value > 0) > MOST_CHOICES:
        return columns, bound, Status.LIMIT
    try:
        found, bound_too = _by_highs(market, gap=gap, time_limit_s=deadline.left_s())
    except SolverFailed:
        return columns, bound, Status.LIMIT
    return max(columns, found, key=market.worth), min(bound, bound_too), Status.OPTIMAL


def _dealt(mix: tuple[tuple[float, Ints], ...]) -> Ints:
    """A whole answer for each row, so that of rows that are alike each part has its answer."""
    answers = np.array([answer for _, answer in mix])
    turn = np.empty(answers.shape[1], dtype=np.int64)
    turn[np.lexsort(answers)] = np.arange(turn.size)
    until = np.cumsum([part for part, _ in mix])
    whose = np.searchsorted(until / until[-1], turn * GOLDEN % 1, side="right")
    dealt: Ints = answers[whose, np.arange(turn.size)]
    return dealt


def _fitted(market: Market, columns: Ints, prices: Floats) -> Ints:
    """Where a type is overfull, those make do with less of it who lose least by the GPU."""
    columns = columns.copy()
    reduced = market.v - prices @ market.u
    while ((over := market.used(columns) - market.capacity) > 0).any():
        j = int(over.argmax())
        alone = market.u.sum(axis=0) == market.u[j]
        freed = np.where(alone, market.u[j, columns][:, None] - market.u[j], 0)
        worth_now = np.take_along_axis(reduced, columns[:, None], axis=1)
        loss = np.where(freed > 0, (worth_now - reduced) / np.maximum(freed, 1), np.inf)
        instead = loss.argmin(axis=1)
        rows = np.arange(len(columns))
        cheapest = np.argsort(loss[rows, instead], kind="stable")
        enough = int(np.searchsorted(freed[cheapest, instead[cheapest]].cumsum(), over[j])) + 1
        giving = cheapest[:enough]
        columns[giving] = instead[giving]
    return columns


def _filled(market: Market, columns: Ints, prices: Floats) -> Ints:
    """The same made to fit; what is left then goes to whoever gains most by it, until nobody gains."""
    columns = _fitted(market, columns, prices)
    while True:
        left = market.capacity - market.used(columns)
        rows, wanted = _wishes(market, columns, prices, left)
        if not rows.size:
            return columns
        served = _served_in_turn(market.u[:, wanted] - market.u[:, columns[rows]], left)
        columns[rows[served]] = wanted[served]


def _wishes(market: Market, columns: Ints, prices: Floats, left: Floats) -> tuple[Ints, Ints]:
    """The rows that could do better with what is left, those that gain most first, and what each would take."""
    now, mine = np.take_along_axis(market.v, columns[:, None], axis=1)[:, 0], market.u[:, columns]
    reduced, best, wanted = now - prices @ mine, np.full(len(columns), -np.inf), np.zeros_like(columns)
    for k in range(1, market.v.shape[1]):
        types = np.flatnonzero(market.u[:, k])
        fits = np.all(market.u[types, k, None] - mine[types] <= left[types, None], axis=0)
        better = fits & (market.v[:, k] > now)
        gain = np.where(better, market.v[:, k] - prices @ market.u[:, k] - reduced, -np.inf)
        wanted = np.where(gain > best, k, wanted)
        best = np.maximum(best, gain)
    rows = np.flatnonzero(wanted)
    rows = rows[np.argsort(-best[rows], kind="stable")]
    return rows, wanted[rows]


def _served_in_turn(extra: Floats, left: Floats) -> Ints:
    """Whose extra GPUs (n, r) are to be had, when who does not fit is passed over."""
    waiting, served = np.arange(extra.shape[1]), list[Ints]()
    while waiting.size:
        waiting = waiting[(extra[:, waiting] <= left[:, None]).all(axis=0)]
        fits = np.all(extra[:, waiting].cumsum(axis=1) <= left[:, None], axis=0)
        first = waiting[np.logical_and.accumulate(fits)]
        served.append(first)
        left = left - extra[:, first].sum(axis=1)
        waiting = waiting[first.size :]
    return np.concatenate(served) if served else waiting


def _by_highs(market: Market, *, gap: float, time_limit_s: float) -> tuple[Ints, float]:
    """The integer program itself: a column for each job, and the bound."""
    i, k = (market.value > 0).nonzero()
    m = len(market.value)
    once = csr_array((np.ones(i.size), (i, np.arange(i.size))), shape=(m, i.size))
    rows = vstack([once, csr_array(market.usage[:, k].astype(float))])
    limits = np.concatenate([np.ones(m), market.capacity])
    whole = np.ones(i.size, dtype=np.int64)
    worth = market.value[i, k]
    found = maximize(worth, rows, limits, most=1, integrality=whole, time_limit_s=time_limit_s, gap=gap)
    columns = np.zeros(m, dtype=np.int64)
    chosen = found.x > 0.5
    columns[i[chosen]] = k[chosen] + 1
    return columns, found.bound
