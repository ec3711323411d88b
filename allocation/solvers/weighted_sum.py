"""Maximum weighted sum of shares, also with least rates, and the least shortfall of these: by the Lagrangian dual."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

import numpy as np
import scipy

from allocation.decision import Decision, Status
from allocation.solvers.lagrangian_dual import SeparableProblem, solve_dual
from allocation.solvers.least_rates import LeastRateProblem, ShortfallProblem, SparseShares, deal
from allocation.solvers.linear_program import SolverFailed, maximize
from allocation.solvers.presolve import JobClasses, group_identical
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
class ReachedRates:
    """Least rates (m,), shares (m, K) that fit and reach them, and whether their shortfall is proven to be least."""

    rates: Floats
    shares: Floats
    is_proven: bool


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
    least: ReachedRates | None = None,
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
    least : l (m,), the rate that each job must have, and shares that reach it; none unless given.
    budget : when it is spent first, the solution of the dual counts, with the status `limit` and its certified bound.

    Raises
    ------
    SolverFailed
        The linear program, for which the dual left a gap, has none either.
    """
    began, budget = perf_counter(), budget.at_most(TIME_LIMIT_S)
    demanded = np.zeros(len(rate)) if least is None else least.rates
    classes = group_identical(np.column_stack([worth, rate, demanded]))
    b, T, least_rate = (rows[classes.first] for rows in (worth, rate, demanded))
    value, available = np.where(T > 0, b, 0), capacity.astype(float)
    if least is None or not least_rate.any():
        found = _by_dual(SeparableProblem(value, usage, available, classes.count), budget)
    else:
        demand = least_rate * (1 - SLACK)
        start = SparseShares.of(_mean_of_class(least.shares, classes))
        found = _by_dual_of_rates(LeastRateProblem(value, T, demand, usage, available, classes.count, start), budget)
    if found.bound - found.value > CERTAIN * found.bound:
        program = partial(_by_highs, b, T, usage, capacity, count=classes.count, least=least_rate)
        found = _proven(found, program, budget)
    if least is not None and not least.is_proven:
        found = replace(found, status=Status.LIMIT)
    return replace(found, shares=found.shares[classes.of_row], seconds=perf_counter() - began)


def _by_dual(separable: SeparableProblem, budget: TimeBudget) -> WeightedShares:
    """Primal solution of the dual: the mix of the jobs' responses, scaled to fit."""
    priced = solve_dual(separable, gap=CERTAIN / 10, budget=budget)
    shares, rows = np.zeros(separable.v.shape), np.arange(len(separable.value))
    for part, columns in priced.mix:
        shares[rows, columns] += part
    return _weighed(separable, shares[:, 1:], priced.bound, priced.prices)


def _by_dual_of_rates(jobs: LeastRateProblem, budget: TimeBudget) -> WeightedShares:
    """The same where responses are mixes of two configurations."""
    priced = solve_dual(jobs, gap=CERTAIN / 10, budget=budget)
    shares = np.zeros(jobs.value.shape)
    for part, response in priced.mix:
        response.added_to(shares, part)
    return _weighed(jobs, shares, priced.bound, priced.prices)


def _weighed(problem: SeparableProblem | LeastRateProblem, X: Floats, bound: float, prices: Floats) -> WeightedShares:
    """Shares, one row per class, scaled to fit, with their value."""
    X = _fitted(X, problem.usage, problem.capacity, problem.count)
    value = float(problem.count @ (problem.value * X).sum(axis=1))
    return WeightedShares(X, value, max(bound, value), prices, 0.0, Status.OPTIMAL)


def _fitted(X: Floats, usage: Ints, capacity: Floats, count: Ints) -> Floats:
    """Shares (m, K) scaled to fit, lest rounding errors exceed the capacity."""
    fitted: Floats = X / max((usage @ (count @ X) / np.maximum(capacity, 1e-9)).max(), 1)
    return fitted


def _mean_of_class(shares: Floats, classes: JobClasses) -> Floats:
    """Mean shares (C, K) of the rows of each class."""
    jobs = scipy.sparse.csr_array(
        (1 / classes.count[classes.of_row], (classes.of_row, np.arange(len(shares)))),
        shape=(len(classes.first), len(shares)),
    )
    return np.asarray(jobs @ shares)


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
) -> ReachedRates:
    r"""Minimise the sum of relative shortfalls of the rates (m,) that are wanted; return the rates that are reached.

    .. math::
        \min_{X,\,y}\ \textstyle\sum_i y_i \quad\text{s.t.}\quad
        \textstyle\sum_k T_{ik} X_{ik} \ge (1 - y_i)\, l_i, \quad 0 \le y \le 1, \quad\text{time and capacity}

    A solution of this linear program lets few jobs fall short by much rather than all of them by a little. When the
    time budget is spent first, the best shares so far count.
    """
    rows, budget = np.flatnonzero(wanted > 0), budget.at_most(TIME_LIMIT_S)
    reached, shares = np.zeros(len(rate)), np.zeros(rate.shape)
    if not rows.size:
        return ReachedRates(reached, shares, is_proven=True)
    part = rate[rows] / wanted[rows, None]
    found = _reaching_most(part, usage, capacity, budget)
    shares[rows], reached[rows] = found.shares, found.rates * wanted[rows]
    return ReachedRates(reached, shares, found.is_proven)


def _reaching_most(part: Floats, usage: Ints, capacity: Ints, budget: TimeBudget) -> ReachedRates:
    """Parts (m,) of what is wanted, by the dual, or by the linear program if it leaves a gap and there is time left."""
    shares, bound = _shortfall_by_dual(part, usage, capacity, budget)
    reached = _parts_reached(part, shares)
    if bound - reached.sum() > CERTAIN * bound and not budget.passed():
        with suppress(SolverFailed):
            shares = _shortfall_by_highs(part, usage, capacity, budget)
            return ReachedRates(_parts_reached(part, shares), shares, is_proven=True)
    return ReachedRates(reached, shares, is_proven=bool(bound - reached.sum() <= CERTAIN * bound))


def _parts_reached(part: Floats, shares: Floats) -> Floats:
    reached: Floats = np.minimum((part * shares).sum(axis=1), 1)
    return reached


def _shortfall_by_dual(part: Floats, usage: Ints, capacity: Ints, budget: TimeBudget) -> tuple[Floats, float]:
    """Shares (m, K) that reach most, by the dual, and the bound on the sum of the parts that are reached."""
    classes = group_identical(part)
    available = capacity.astype(float)
    jobs = ShortfallProblem.of(part[classes.first], usage, available, classes.count)
    priced = solve_dual(jobs, gap=CERTAIN / 10, budget=budget)
    shares = deal(priced.mix, classes, part.shape[1])
    return _fitted(shares, usage, available, np.ones(len(part), dtype=np.int64)), priced.bound


def _shortfall_by_highs(part: Floats, usage: Ints, capacity: Ints, budget: TimeBudget) -> Floats:
    """Shares (m, K) that reach most, by the linear program."""
    csr_array, vstack = scipy.sparse.csr_array, scipy.sparse.vstack
    i, k = (part > 0).nonzero()
    r, v = len(part), i.size
    columns = np.arange(v)
    short = csr_array((-np.ones(r), (np.arange(r), np.arange(v, v + r))), shape=(r, v + r))
    best = maximize(
        np.append(np.zeros(v), -np.ones(r)),
        vstack(
            [
                csr_array((-part[i, k], (i, columns)), shape=(r, v + r)) + short,  # as wanted, less what is short
                csr_array((np.ones(v), (i, columns)), shape=(r, v + r)),  # time
                csr_array((usage[:, k].ravel(), np.indices((capacity.size, v)).reshape(2, -1)), (capacity.size, v + r)),
            ]
        ),
        np.concatenate([-np.ones(r), np.ones(r), capacity]),
        most=np.append(np.ones(v), np.ones(r)),
        time_limit_s=budget.left_s(),
    )
    shares = np.zeros(part.shape)
    shares[i, k] = np.maximum(best.x[:v], 0)
    shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1)
    return _fitted(shares, usage, capacity.astype(float), np.ones(r, dtype=np.int64))
