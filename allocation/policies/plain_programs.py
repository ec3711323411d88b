"""Shared parts of the policies' plain programs: rows over shares, solution by HiGHS, lexicographic max-min.

A plain program is a policy's formula with one row per job. It documents the policy, is the oracle of its tests,
and is the fallback if the structured solver fails.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy

from allocation.decision import Decision, Status
from allocation.problem import Problem
from allocation.solvers.linear_program import Solution, SolverFailed, maximize
from allocation.solvers.water_filling import MaxMinShares
from allocation.time_budget import TimeBudget
from allocation.types import Bools, Floats, Ints

TIME_LIMIT_S = 60.0
"""Time limit of a plain program, whatever the round's time limit."""
TOLERANCE, LOOSER = 1e-10, 1e-8
"""Feasibility tolerances; at the first, HiGHS sometimes reports barely feasible programs as infeasible."""
PRESSED = 1e-3
"""Relative dual of a fair row below which its job is not yet fixed at this level, but at a later one.

A later level may raise such a job at the others' expense by the tolerance over this ratio, so it is not small.
"""


def each_jobs_sum(a: Floats) -> "scipy.sparse.csr_array":
    """Rows (m, m K): sum_k a[i, k] X[i, k] of each job i."""
    m, K = a.shape
    return scipy.sparse.csr_array(scipy.sparse.kron(scipy.sparse.eye_array(m), np.ones((1, K))).multiply(a.ravel()))


def all_jobs_sum(usage: Ints, jobs: int) -> "scipy.sparse.csr_array":
    """Rows (n, m K): sum_i sum_k u[j, k] X[i, k] of each GPU type j."""
    return scipy.sparse.csr_array(scipy.sparse.kron(np.ones((1, jobs)), usage))


def solve(
    objective: Floats,
    rows: list[list[Any]],
    limits: list[Floats | Ints],
    *,
    usable: Bools,
    budget: TimeBudget,
    whole: bool = False,
    gap: float = 0.0,
) -> Solution:
    r"""Maximise over shares X (m, K), 0 where they are not usable, and what further variables the blocks have.

    Rows and further variables are scaled to 1 first: weights and rates are of any order of magnitude.

    Parameters
    ----------
    objective : (m K + further,) float.
    rows, limits : blocks of `scipy.sparse.block_array`, and for each row of blocks its upper limits.
    usable : (m, K) bool.
    whole, gap : whether X is 0 or 1, and how far from the best it may be then, relatively.

    Raises
    ------
    SolverFailed
        Infeasible, or time ran out.
    """
    shares = np.flatnonzero(usable)
    columns = np.append(shares, np.arange(usable.size, objective.size))
    A, c = scipy.sparse.csr_array(scipy.sparse.block_array(rows))[:, columns], objective[columns]
    upper: Floats = np.concatenate(limits).astype(float)
    per_row = 1 / _largest(abs(A[:, : shares.size]).max(axis=1))
    A = scipy.sparse.csr_array(scipy.sparse.diags_array(per_row) @ A)
    unit = np.append(np.ones(shares.size), 1 / _largest(abs(A[:, shares.size :]).max(axis=0)))
    worth = float(np.abs(c * unit).max(initial=0)) or 1.0
    best = _best_of(
        c * unit / worth,
        scipy.sparse.csr_array(A @ scipy.sparse.diags_array(unit)),
        upper * per_row,
        integrality=np.ones(columns.size, dtype=np.int64) if whole else None,
        budget=budget.at_most(TIME_LIMIT_S),
        gap=gap,
    )
    x = np.zeros(objective.size)
    x[columns] = best.x * unit
    value, bound = best.value * worth, best.bound * worth
    return replace(best, x=x, value=value, bound=bound, duals=best.duals * worth * per_row)


def _best_of(
    c: Floats,
    rows: "scipy.sparse.csr_array",
    upper: Floats,
    *,
    integrality: Ints | None,
    budget: TimeBudget,
    gap: float,
) -> Solution:
    """Solve at the tightest tolerance at which there is an answer; an integer program keeps to HiGHS's own."""
    if integrality is not None:
        return maximize(c, rows, upper, most=1.0, integrality=integrality, time_limit_s=budget.left_s(), gap=gap)
    with suppress(SolverFailed):
        return maximize(c, rows, upper, time_limit_s=budget.left_s(), tolerance=TOLERANCE)
    return maximize(c, rows, upper, time_limit_s=budget.left_s(), tolerance=LOOSER)


def _largest(found: Any) -> Floats:
    """Largest entries as an array; 1 where all are 0."""
    dense = np.ravel(found.toarray() if hasattr(found, "toarray") else found).astype(float)
    return np.where(dense > 0, dense, 1.0)


def decision_of_shares(best: Solution, usage: Ints, capacity: Ints) -> Decision:
    """Decision from a program over shares whose last n rows are those of capacity."""
    shares = _fitted(best.x.reshape(-1, usage.shape[1]), usage, capacity)
    prices, seconds = best.duals[-capacity.size :], best.seconds
    return Decision.of_shares(shares, prices=prices, objective=best.value, bound=best.bound, solve_seconds=seconds)


def solve_integer(
    problem: Problem,
    value: Floats,
    rows: list[list[Any]],
    limits: list[Floats | Ints],
    *,
    usable: Bools,
    gap: float,
    budget: TimeBudget,
    objective: Callable[[float], float] = float,
) -> Decision:
    """Maximise the total value of the configurations X (m, K), each 0 or 1; locked jobs keep what they hold.

    Parameters
    ----------
    value : (m, K), of each configuration; infeasible unless positive.
    rows, limits, usable : as `solve` takes them; the configurations of locked jobs are taken off the limits.
    gap : relative optimality gap.
    objective : total value → the policy's objective; the value itself unless given.

    Returns
    -------
    Decision
        assignment (m,) and value (m, K); an integer program has no prices.

    Raises
    ------
    SolverFailed
        As `solve`.
    """
    held, locked = problem.held, problem.locked
    stays = locked[:, None] & (np.arange(value.shape[1]) == held[:, None])
    left = [upper - block[0] @ stays.ravel() for block, upper in zip(rows, limits, strict=True)]
    worth = np.where(usable, value, 0)
    best = solve(worth.ravel(), rows, left, usable=worth > 0, budget=budget, whole=True, gap=gap)
    X, kept = best.x.reshape(worth.shape), float(value[stays].sum())
    picks = np.where(X.max(axis=1) > 0.5, X.argmax(axis=1), -1)
    return Decision.of_assignment(
        np.where(locked, held, picks),
        prices=np.zeros(len(problem.capacity)),
        objective=objective(best.value + kept),
        bound=objective(best.bound + kept),
        status=best.status,
        solve_seconds=best.seconds,
        value=worth,
    )


@dataclass(frozen=True, eq=False)
class Level:
    """A level, the jobs' rates (m,) there, and the program's solution, whose first m rows are those of the rates."""

    z: float
    rates: Floats
    best: Solution

    def stops(self, rising: Bools, fastest: Floats) -> Bools:
        """Jobs (m,) fixed at this level: their rows have a positive dual, so they can rise only if others fall."""
        pressure = np.where(rising, self.best.duals[: len(rising)] * fastest, 0)
        stopped: Bools = pressure > PRESSED * pressure.max()
        return stopped


def lexicographic(
    highest: Callable[[Bools, Floats], Level],
    a: Floats,
    usage: Ints,
    capacity: Ints,
    *,
    levels: int | None = None,
) -> tuple[MaxMinShares, Floats]:
    """Lexicographic max-min by a sequence of programs: fix the jobs that a level stops, and raise the others.

    Parameters
    ----------
    highest : which jobs (m,) rise, and the rates (m,) that the others keep → the level that those can be raised to.
    a, usage, capacity : (m, K), what each share adds to a job's rate; (n, K) and (n,) GPUs, the program's last n rows.
    levels : most levels; all by default.

    Returns
    -------
    The lowest level with the final shares (m, K), and the level (m,) at which each job was fixed.

    Raises
    ------
    SolverFailed
        The first level was not solved in time; later levels are optional.
    """
    tops, status = list[Level](), Status.OPTIMAL
    rising, kept, fastest = np.ones(len(a), dtype=np.bool_), np.zeros(len(a)), a.max(axis=1)
    stopped_at = np.full(len(a), np.inf)
    while rising.any() and (levels is None or len(tops) < levels):
        try:
            top = highest(rising, kept)
        except SolverFailed:
            if not tops:
                raise
            status = Status.LIMIT
            break
        tops.append(top)
        shares = _fitted(top.best.x[: a.size].reshape(a.shape), usage, capacity)
        stops = top.stops(rising, fastest)
        stopped_at[stops], rising = top.z, rising & ~stops
        kept = np.minimum(top.rates, (a * shares).sum(axis=1))
    prices = [top.best.duals[-capacity.size :] for top in tops]
    filled = MaxMinShares(
        shares=shares,
        level=tops[0].z,
        bound=tops[0].z,
        prices=next((gain for gain in prices if gain.max() > 0), prices[0]),
        seconds=sum(top.best.seconds for top in tops),
        status=status,
    )
    return filled, stopped_at


def solve_levels(
    rows: list[list[Any]],
    limits: list[Floats | Ints],
    *,
    rates: Floats,
    usage: Ints,
    levels: int | None = None,
    budget: TimeBudget,
) -> MaxMinShares:
    """Lexicographic max-min of z by a linear program over shares X (m, K) and z; the last rows are those of capacity.

    The first block row is, for each job, z times what it needs less its rate, at most 0. At a later level each job that
    was fixed keeps its rate instead.

    Parameters
    ----------
    rows, limits : the program of the lowest level, as `solve` takes it.
    rates : (m, K), what each share adds to a job's rate.
    usage : (n, K) GPUs.
    levels : most levels; all by default.

    Raises
    ------
    SolverFailed
        The first level was not solved in time; later levels are optional.
    """
    (job_rows, need), *others = rows
    objective = np.append(np.zeros(rates.size), 1)

    def highest(rising: Bools, kept: Floats) -> Level:
        first = [job_rows, np.where(rising[:, None], need, 0)]
        first_limits = np.where(rising, limits[0], -kept)
        best = solve(objective, [first, *others], [first_limits, *limits[1:]], usable=rates > 0, budget=budget)
        return Level(best.value, np.where(rising, best.value * need[:, 0], kept), best)

    return lexicographic(highest, rates, usage, np.asarray(limits[-1]), levels=levels)[0]


def _fitted(X: Floats, usage: Ints, capacity: Ints) -> Floats:
    """Shares (m, K) scaled down to be feasible exactly, so that the next level can keep their rates."""
    X = np.maximum(X, 0)
    X = X / np.maximum(X.sum(axis=1, keepdims=True), 1)
    over = float(np.max(usage @ X.sum(axis=0) / np.maximum(capacity, 1)))
    fitted: Floats = X / max(over, 1)
    return fitted
