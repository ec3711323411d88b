"""Shares that are worth most together: by prices, and as a linear program where rates are demanded, too."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

import numpy as np
from scipy.sparse import csr_array, vstack

from allocation.arrays import Floats, Ints
from allocation.classes import alike
from allocation.deadline import NEVER, Deadline
from allocation.decision import Decision
from allocation.prices import Market, best_prices
from allocation.solve import SolverFailed, Status, maximize

TIME_LIMIT_S = 60.0
CERTAIN = 1e-7
"""The gap, relative to the value, up to which an answer by prices counts as the best one."""
SLACK = 1e-9
"""Relative; what a first program reached, a second starts from, where rounding could make it infeasible."""


@dataclass(frozen=True, eq=False)
class Shares:
    """Shares (m, K), what they are worth, its bound, and its gain (n,) from one more GPU of each type."""

    shares: Floats
    value: float
    bound: float
    prices: Floats
    seconds: float
    status: Status

    @property
    def decision(self) -> Decision:
        """As of a policy whose objective is what they are worth."""
        return Decision.of_shares(
            self.shares,
            prices=self.prices,
            objective=self.value,
            bound=self.bound,
            status=self.status,
            solve_seconds=self.seconds,
        )


def most_worth(
    worth: Floats,
    rate: Floats,
    usage: Ints,
    capacity: Ints,
    *,
    least: Floats | None = None,
    deadline: Deadline = NEVER,
) -> Shares:
    r"""Give the shares that are worth most together; rows that are equal, N of a kind, stand for one another.

    .. math::
        \max_X\ \textstyle\sum_{ik} N_i b_{ik} X_{ik} \quad\text{s.t.}\quad
        & \textstyle\sum_k X_{ik} \le 1                         && \forall i \quad\text{(time)} \\
        & \textstyle\sum_i N_i \sum_k u_{jk} X_{ik} \le c_j     && \forall j \quad\text{(capacity)} \\
        & \textstyle\sum_k T_{ik} X_{ik} \ge l_i                && \forall i \text{ with } l_i > 0 \quad\text{(least)}

    Parameters
    ----------
    worth, rate : b and T (m, K); X is 0 where the rate is.
    usage, capacity : u (n, K) and c (n,) GPUs.
    least : l (m,), the rate that each job must have; none unless given.
    deadline : when it comes first, the answer by prices counts, with the status `limit` and its certified bound.

    Raises
    ------
    SolverFailed
        The least rates do not fit together, or the deadline came, and prices know nothing of least rates.
    """
    began, deadline = perf_counter(), deadline.at_most(TIME_LIMIT_S)
    demanded = np.zeros(len(rate)) if least is None else least
    kinds = alike(np.column_stack([worth, rate, demanded]))
    b, T, floor = (rows[kinds.first] for rows in (worth, rate, demanded))
    market = Market(np.where(T > 0, b, 0), usage, capacity.astype(float), kinds.count)
    found = None if floor.any() else _by_prices(market, deadline)
    if found is None or found.bound - found.value > CERTAIN * found.bound:
        program = partial(_by_highs, b, T, usage, capacity, count=kinds.count, least=floor)
        found = program(deadline=deadline) if found is None else _proven(found, program, deadline)
    return replace(found, shares=found.shares[kinds.of_row], seconds=perf_counter() - began)


def _by_prices(market: Market, deadline: Deadline) -> Shares:
    """What jobs take at the best prices, mixed so that it fits."""
    priced = best_prices(market, gap=CERTAIN / 10, deadline=deadline)
    shares, rows = np.zeros(market.v.shape), np.arange(len(market.value))
    for part, columns in priced.mix:
        shares[rows, columns] += part
    X = shares[:, 1:]
    used = market.usage @ (market.count @ X)
    X = X / max((used / np.maximum(market.capacity, 1e-9)).max(), 1)
    value = float(market.count @ (market.value * X).sum(axis=1))
    return Shares(X, value, max(priced.bound, value), priced.prices, 0.0, Status.OPTIMAL)


def _proven(found: Shares, program: Callable[..., Shares], deadline: Deadline) -> Shares:
    """What the program answers, or, if the deadline comes first, this."""
    if deadline.passed():
        return replace(found, status=Status.LIMIT)
    try:
        return program(deadline=deadline)
    except SolverFailed:
        if not deadline.passed():
            raise
        return replace(found, status=Status.LIMIT)


def _by_highs(
    worth: Floats, rate: Floats, usage: Ints, capacity: Ints, *, count: Ints, least: Floats, deadline: Deadline
) -> Shares:
    """The linear program itself."""
    m, N = len(rate), count
    i, k = (rate > 0).nonzero()
    columns = np.arange(i.size)
    bound = np.flatnonzero(least > 0)
    best = maximize(
        N[i] * worth[i, k],
        vstack(
            [
                csr_array((np.ones(i.size), (i, columns)), shape=(m, i.size)),  # time
                csr_array(usage[:, k] * N[i]),  # capacity
                csr_array((-rate[i, k], (i, columns)), shape=(m, i.size))[bound],  # least
            ]
        ),
        np.concatenate([np.ones(m), capacity, (SLACK - 1) * least[bound]]),
        time_limit_s=deadline.left_s(),
    )
    X = np.zeros(rate.shape)
    X[i, k] = best.x
    prices = best.duals[m : m + capacity.size]
    return Shares(X, best.value, best.bound, prices, best.seconds, best.status)


def least_shortfall(rate: Floats, usage: Ints, capacity: Ints, wanted: Floats, *, deadline: Deadline = NEVER) -> Floats:
    r"""Give the rates (m,) that can be had at once, as near to those wanted as they come.

    .. math::
        \min_{X,\,y}\ \textstyle\sum_i y_i \quad\text{s.t.}\quad
        \textstyle\sum_k T_{ik} X_{ik} \ge (1 - y_i)\, l_i, \quad 0 \le y \le 1, \quad\text{time and capacity}

    A linear program of this kind disappoints few jobs much rather than all of them a little.
    """
    rows = np.flatnonzero(wanted > 0)
    if not rows.size:
        return np.zeros(len(rate))
    T = rate[rows]
    i, k = (T > 0).nonzero()
    r, v = rows.size, i.size
    columns = np.arange(v)
    short = csr_array((-wanted[rows], (np.arange(r), np.arange(v, v + r))), shape=(r, v + r))
    best = maximize(
        np.append(np.zeros(v), -np.ones(r)),
        vstack(
            [
                csr_array((-T[i, k], (i, columns)), shape=(r, v + r)) + short,  # as wanted, less what is short
                csr_array((np.ones(v), (i, columns)), shape=(r, v + r)),  # time
                csr_array((usage[:, k].ravel(), np.indices((capacity.size, v)).reshape(2, -1)), (capacity.size, v + r)),
            ]
        ),
        np.concatenate([-wanted[rows], np.ones(r), capacity]),
        most=np.append(np.ones(v), np.ones(r)),
        time_limit_s=deadline.at_most(TIME_LIMIT_S).left_s(),
    )
    reached = np.zeros(len(rate))
    reached[rows] = wanted[rows] * np.clip(1 - best.x[v:], 0, 1)
    return reached
