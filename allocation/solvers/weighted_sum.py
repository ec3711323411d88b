"""Maximum weighted sum of shares: by the Lagrangian dual, or as a linear program where least rates are demanded."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

import numpy as np
import scipy

from allocation.decision import Decision, Status
from allocation.solvers.lagrangian_dual import SeparableProblem, solve_dual
from allocation.solvers.linear_program import SolverFailed, maximize
from allocation.solvers.presolve import group_identical
from allocation.time_budget import UNLIMITED, TimeBudget
from allocation.types import Floats, Ints

TIME_LIMIT_S = 60.0
CERTAIN = 1e-7
"""Relative gap up to which the solution of the dual counts as optimal."""
TOLERANCE = 1e-10
"""Of reduced costs, relative to the highest worth, and of rows."""
SLACK = 1e-9
"""Relative slack of the least rates: a second program starts from what a first one reached, less rounding errors."""


@dataclass(frozen=True, eq=False)
class WeightedShares:
    """Shares (m, K), their weighted sum, its bound, and prices (n,), the gain from one more GPU of each type."""

    shares: Floats
    value: float
    bound: float
    prices: Floats
    seconds: float
    status: Status

    @property
    def decision(self) -> Decision:
        """Decision of a policy whose objective is the weighted sum."""
        return Decision.of_shares(
            self.shares,
            prices=self.prices,
            objective=self.value,
            bound=self.bound,
            status=self.status,
            solve_seconds=self.seconds,
        )


def maximize_weighted_sum(
    worth: Floats,
    rate: Floats,
    usage: Ints,
    capacity: Ints,
    *,
    least: Floats | None = None,
    budget: TimeBudget = UNLIMITED,
) -> WeightedShares:
    r"""Maximise the weighted sum of shares; identical rows, N of a class, are solved as one.

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
    budget : when it is spent first, the solution of the dual counts, with the status `limit` and its certified bound.

    Raises
    ------
    SolverFailed
        The least rates are infeasible together, or the time budget is spent: the dual has no rows of least rates.
    """
    began, budget = perf_counter(), budget.at_most(TIME_LIMIT_S)
    demanded = np.zeros(len(rate)) if least is None else least
    classes = group_identical(np.column_stack([worth, rate, demanded]))
    b, T, least_rate = (rows[classes.first] for rows in (worth, rate, demanded))
    separable = SeparableProblem(np.where(T > 0, b, 0), usage, capacity.astype(float), classes.count)
    found = None if least_rate.any() else _by_dual(separable, budget)
    if found is None or found.bound - found.value > CERTAIN * found.bound:
        program = partial(_by_highs, b, T, usage, capacity, count=classes.count, least=least_rate)
        found = program(budget=budget) if found is None else _proven(found, program, budget)
    return replace(found, shares=found.shares[classes.of_row], seconds=perf_counter() - began)


def _by_dual(separable: SeparableProblem, budget: TimeBudget) -> WeightedShares:
    """Primal solution of the dual: the mix of the jobs' responses, scaled to fit."""
    priced = solve_dual(separable, gap=CERTAIN / 10, budget=budget)
    shares, rows = np.zeros(separable.v.shape), np.arange(len(separable.value))
    for part, columns in priced.mix:
        shares[rows, columns] += part
    X = shares[:, 1:]
    used = separable.usage @ (separable.count @ X)
    X = X / max((used / np.maximum(separable.capacity, 1e-9)).max(), 1)
    value = float(separable.count @ (separable.value * X).sum(axis=1))
    return WeightedShares(X, value, max(priced.bound, value), priced.prices, 0.0, Status.OPTIMAL)


def _proven(found: WeightedShares, program: Callable[..., WeightedShares], budget: TimeBudget) -> WeightedShares:
    """Solution of the linear program, or these shares if the time budget is spent first."""
    if budget.passed():
        return replace(found, status=Status.LIMIT)
    try:
        return program(budget=budget)
    except SolverFailed:
        if not budget.passed():
            raise
        return replace(found, status=Status.LIMIT)


def _by_highs(
    worth: Floats, rate: Floats, usage: Ints, capacity: Ints, *, count: Ints, least: Floats, budget: TimeBudget
) -> WeightedShares:
    """Linear program by HiGHS."""
    csr_array, vstack = scipy.sparse.csr_array, scipy.sparse.vstack
    m, N = len(rate), count
    i, k = (rate > 0).nonzero()
    columns = np.arange(i.size)
    bound = np.flatnonzero(least > 0)
    unit = float((N[i] * worth[i, k]).max(initial=0)) or 1.0  # worths are of any order of magnitude
    best = maximize(
        N[i] * worth[i, k] / unit,
        vstack(
            [
                csr_array((np.ones(i.size), (i, columns)), shape=(m, i.size)),  # time
                csr_array(usage[:, k] * N[i]),  # capacity
                csr_array((-rate[i, k], (i, columns)), shape=(m, i.size))[bound],  # least
            ]
        ),
        np.concatenate([np.ones(m), capacity, (SLACK - 1) * least[bound]]),
        time_limit_s=budget.left_s(),
        tolerance=TOLERANCE,
    )
    X = np.zeros(rate.shape)
    X[i, k] = best.x
    prices = unit * best.duals[m : m + capacity.size]
    return WeightedShares(X, unit * best.value, unit * best.bound, prices, best.seconds, best.status)


def minimize_shortfall(
    rate: Floats, usage: Ints, capacity: Ints, wanted: Floats, *, budget: TimeBudget = UNLIMITED
) -> Floats:
    r"""Minimise the sum of relative shortfalls of the rates (m,) that are wanted; return the rates that are reached.

    .. math::
        \min_{X,\,y}\ \textstyle\sum_i y_i \quad\text{s.t.}\quad
        \textstyle\sum_k T_{ik} X_{ik} \ge (1 - y_i)\, l_i, \quad 0 \le y \le 1, \quad\text{time and capacity}

    A solution of this linear program lets few jobs fall short by much rather than all of them by a little.
    """
    rows = np.flatnonzero(wanted > 0)
    if not rows.size:
        return np.zeros(len(rate))
    csr_array, vstack = scipy.sparse.csr_array, scipy.sparse.vstack
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
        time_limit_s=budget.at_most(TIME_LIMIT_S).left_s(),
    )
    reached = np.zeros(len(rate))
    reached[rows] = wanted[rows] * np.clip(1 - best.x[v:], 0, 1)
    return reached
