r"""One configuration per job, worth most together: an integer program, by prices and, if these leave a gap, HiGHS.

.. math::
    \max_{X \in \{0,1\}}\ \textstyle\sum_{ik} v_{ik} X_{ik} \quad\text{s.t.}\quad
    \textstyle\sum_k X_{ik} \le 1, \qquad \textstyle\sum_i \sum_k u_{jk} X_{ik} \le c_j

At prices y per GPU each job takes what is best for it alone, and weak duality bounds the value:

.. math::
    h(y) = \textstyle\sum_i \max\left(0,\ \max_k v_{ik} - y\,u_{\cdot k}\right) + y\,c
    \ \ge\ \text{the best value}, \qquad y \ge 0

Cutting planes find the y that bounds it best; the answer there, made to fit and filled up, is a certified distance from
the bound.
"""

from dataclasses import dataclass
from functools import cached_property
from time import perf_counter

import numpy as np
from scipy.sparse import csr_array, vstack

from allocation.arrays import Floats, Ints
from allocation.solve import SolverFailed, Status, maximize

SMALL = 200
"""So many jobs HiGHS solves to the end in a few hundredths of a second."""
MOST_CUTS = 200
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
    task = _Task(np.maximum(value, 0.0), usage, capacity.astype(float))
    prices, bound = _best_prices(task)
    columns = _filled(task, _fitted(task, task.best_at(prices), prices), prices)
    status = Status.OPTIMAL
    if len(value) <= SMALL or bound - task.worth(columns) > gap * task.worth(columns):
        columns, bound, status = _settled(task, columns, bound, gap=gap, time_limit_s=time_limit_s)
    worth = task.worth(columns)
    return Picks(columns - 1, worth, max(bound, worth), prices, perf_counter() - began, status)


def _settled(
    task: "_Task", columns: Ints, bound: float, *, gap: float, time_limit_s: float
) -> tuple[Ints, float, Status]:
    """The better of this answer and what HiGHS finds, the bound, and whether the gap was reached."""
    try:
        found, bound_too = _by_highs(task, gap=gap, time_limit_s=time_limit_s)
    except SolverFailed:
        return columns, bound, Status.FALLBACK
    return max(columns, found, key=task.worth), min(bound, bound_too), Status.OPTIMAL


@dataclass(frozen=True, eq=False)
class _Task:
    """Column 0 of the padded arrays is to have nothing."""

    value: Floats
    usage: Ints
    capacity: Floats

    @cached_property
    def v(self) -> Floats:
        """(m, 1 + K); -inf: not for this job."""
        return np.column_stack([np.zeros(len(self.value)), np.where(self.value > 0, self.value, -np.inf)])

    @cached_property
    def u(self) -> Floats:
        """(n, 1 + K)."""
        return np.column_stack([np.zeros(len(self.usage)), self.usage])

    def best_at(self, prices: Floats) -> Ints:
        """What each job (m,) takes at these prices: a padded column."""
        best: Ints = (self.v - prices @ self.u).argmax(axis=1)
        return best

    def worth(self, columns: Ints) -> float:
        return float(np.take_along_axis(self.v, columns[:, None], axis=1).sum())

    def used(self, columns: Ints) -> Floats:
        used: Floats = self.u[:, columns].sum(axis=1)
        return used


def _best_prices(task: _Task) -> tuple[Floats, float]:
    """The prices with the lowest bound, by cutting planes: each answer cuts off prices that it does better than."""
    n = len(task.capacity)
    prices, bound, best = np.zeros(n), np.inf, np.zeros(n)
    offers, slopes = [0.0], [task.capacity]
    for _ in range(MOST_CUTS):
        taken = task.best_at(prices)
        offers.append(task.worth(taken))
        slopes.append(task.capacity - task.used(taken))
        here = offers[-1] + float(prices @ slopes[-1])
        if here < bound:
            bound, best = here, prices
        prices, floor = _lowest(np.array(offers), np.array(slopes))
        if bound - floor <= 1e-6 * max(abs(bound), 1e-12):
            break
    return best, bound


def _lowest(offers: Floats, slopes: Floats) -> tuple[Floats, float]:
    """Where the highest of these planes over prices (n,) is lowest, and how low: no bound can be lower."""
    n = slopes.shape[1]
    rows = np.column_stack([slopes, -np.ones(len(slopes))])
    found = maximize(np.append(np.zeros(n), -1), rows, -offers, tolerance=1e-9)
    return found.x[:n], -found.value


def _fitted(task: _Task, columns: Ints, prices: Floats) -> Ints:
    """Where a type is overfull, those make do with less of it who lose least by the GPU."""
    columns = columns.copy()
    reduced = task.v - prices @ task.u
    while ((over := task.used(columns) - task.capacity) > 0).any():
        j = int(over.argmax())
        alone = task.u.sum(axis=0) == task.u[j]
        freed = np.where(alone, task.u[j, columns][:, None] - task.u[j], 0)
        worth_now = np.take_along_axis(reduced, columns[:, None], axis=1)
        loss = np.where(freed > 0, (worth_now - reduced) / np.maximum(freed, 1), np.inf)
        instead = loss.argmin(axis=1)
        rows = np.arange(len(columns))
        cheapest = np.argsort(loss[rows, instead], kind="stable")
        enough = int(np.searchsorted(freed[cheapest, instead[cheapest]].cumsum(), over[j])) + 1
        giving = cheapest[:enough]
        columns[giving] = instead[giving]
    return columns


def _filled(task: _Task, columns: Ints, prices: Floats) -> Ints:
    """What is left goes to whoever gains most by it, until nobody gains."""
    columns = columns.copy()
    reduced = task.v - prices @ task.u
    while True:
        left = task.capacity - task.used(columns)
        now = columns[:, None]
        more = task.u[:, None, :] - task.u[:, columns][:, :, None]
        better = (task.v > np.take_along_axis(task.v, now, axis=1)) & (more <= left[:, None, None]).all(axis=0)
        gain = np.where(better, reduced - np.take_along_axis(reduced, now, axis=1), -np.inf)
        wanted = gain.argmax(axis=1)
        eager = np.flatnonzero(better.any(axis=1))
        if not eager.size:
            return columns
        for i in eager[np.argsort(-gain[eager, wanted[eager]], kind="stable")].tolist():
            extra = more[:, i, wanted[i]]
            if (extra <= left).all():
                columns[i], left = wanted[i], left - extra


def _by_highs(task: _Task, *, gap: float, time_limit_s: float) -> tuple[Ints, float]:
    """The integer program itself: a column for each job, and the bound."""
    i, k = (task.value > 0).nonzero()
    m = len(task.value)
    once = csr_array((np.ones(i.size), (i, np.arange(i.size))), shape=(m, i.size))
    rows = vstack([once, csr_array(task.usage[:, k].astype(float))])
    limits = np.concatenate([np.ones(m), task.capacity])
    whole = np.ones(i.size, dtype=np.int64)
    worth = task.value[i, k]
    found = maximize(worth, rows, limits, most=1, integrality=whole, time_limit_s=time_limit_s, gap=gap)
    columns = np.zeros(m, dtype=np.int64)
    chosen = found.x > 0.5
    columns[i[chosen]] = k[chosen] + 1
    return columns, found.bound
