r"""One configuration per job, worth most together: an integer program, by prices and, if these leave a gap, HiGHS.

.. math::
    \max_{X \in \{0,1\}}\ \textstyle\sum_{ik} v_{ik} X_{ik} \quad\text{s.t.}\quad
    \textstyle\sum_k X_{ik} \le 1, \qquad \textstyle\sum_i \sum_k u_{jk} X_{ik} \le c_j

The prices of `allocation.prices` bound the value. What jobs take at these prices, made to fit and filled up, is a
certified distance from the bound.
"""

from dataclasses import dataclass
from time import perf_counter

import numpy as np
from scipy.sparse import csr_array, vstack

from allocation.arrays import Floats, Ints
from allocation.prices import Market, best_prices
from allocation.solve import SolverFailed, Status, maximize

SMALL = 200
"""So many jobs HiGHS solves to the end in a few hundredths of a second."""
EXACT = 1e-9
"""As near to the bound, relatively, as rounding lets one prove."""
TIME_LIMIT_S = 20.0


@dataclass(frozen=True, eq=False)
class Picks:
    """picks (m,), a configuration or -1 for none; their value, the bound on it, and prices (n,) per GPU."""

    picks: Ints
    value: float
    bound: float
    prices: Floats
    seconds: float
    status: Status


def best_picks(value: Floats, usage: Ints, capacity: Ints, *, gap: float, time_limit_s: float = TIME_LIMIT_S) -> Picks:
    """Pick within the gap, relative to the value.

    Parameters
    ----------
    value : v (m, K), what a configuration is worth to a job; not more than 0: not for it.
    usage, capacity : u (n, K) and c (n,) GPUs.

    Returns
    -------
    Picks
        optimal: within the gap. Where HiGHS runs out of time first, the answer by prices, as a fallback.
    """
    began = perf_counter()
    market = Market(value, usage, capacity.astype(float), np.ones(len(value), dtype=np.int64))
    priced = best_prices(market)
    prices, bound = priced.prices, priced.bound
    columns = _filled(market, _fitted(market, market.best_at(prices), prices), prices)
    status = Status.OPTIMAL
    short = bound - market.worth(columns)
    if short > (EXACT if len(value) <= SMALL else gap) * market.worth(columns):
        columns, bound, status = _settled(market, columns, bound, gap=gap, time_limit_s=time_limit_s)
    worth = market.worth(columns)
    return Picks(columns - 1, worth, max(bound, worth), prices, perf_counter() - began, status)


def _settled(
    market: Market, columns: Ints, bound: float, *, gap: float, time_limit_s: float
) -> tuple[Ints, float, Status]:
    """The better of this answer and what HiGHS finds, the bound, and whether the gap was reached."""
    try:
        found, bound_too = _by_highs(market, gap=gap, time_limit_s=time_limit_s)
    except SolverFailed:
        return columns, bound, Status.FALLBACK
    return max(columns, found, key=market.worth), min(bound, bound_too), Status.OPTIMAL


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
    """What is left goes to whoever gains most by it, until nobody gains."""
    columns = columns.copy()
    reduced = market.v - prices @ market.u
    while True:
        left = market.capacity - market.used(columns)
        now = columns[:, None]
        more = market.u[:, None, :] - market.u[:, columns][:, :, None]
        better = (market.v > np.take_along_axis(market.v, now, axis=1)) & (more <= left[:, None, None]).all(axis=0)
        gain = np.where(better, reduced - np.take_along_axis(reduced, now, axis=1), -np.inf)
        wanted = gain.argmax(axis=1)
        eager = np.flatnonzero(better.any(axis=1))
        if not eager.size:
            return columns
        for i in eager[np.argsort(-gain[eager, wanted[eager]], kind="stable")].tolist():
            extra = more[:, i, wanted[i]]
            if (extra <= left).all():
                columns[i], left = wanted[i], left - extra


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
