"""Shares of time on few GPU types per job: a vertex of the optimal shares, by a second linear program.

Many shares give each job the same throughput. Those of identical jobs, for example, are alike from one method, a part
of each type, and one type each from another; with fewer types a job is moved less often.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import scipy

from allocation.decision import Decision
from allocation.problem import Problem
from allocation.solvers.linear_program import SolverFailed, maximize
from allocation.time_budget import TimeBudget
from allocation.types import Floats, Ints

SLACK = 1e-9
"""By how much, relative to it, a job's throughput may be less afterwards."""
NOTHING = 1e-7
"""Shares of time up to which they are rounding errors."""
MOST = 10_000
"""Positive shares up to which the program is solved: it takes half a second of them at most, and seconds of more."""


def on_few_types(problem: Problem, decision: Decision, budget: TimeBudget) -> Decision:
    """The same decision with shares (m, K) on few types per job, or as it is if no time is left for that."""
    if decision.shares is None or decision.pairs is not None or decision.vertex:
        return decision
    try:
        shares = few_types(problem, decision.shares, time_limit_s=budget.left_s())
        return replace(decision, shares=shares, vertex=True)
    except SolverFailed:
        return decision


def few_types(problem: Problem, shares: Floats, *, time_limit_s: float | None = None) -> Floats:
    r"""Shares Y (m, K) that give each job the throughput of X and use no more GPU time, at a vertex.

    .. math::
        \max_{Y}\ \textstyle\sum_i o_i \sum_k v_{ik}^2\, Y_{ik} \quad\text{s.t.}\quad
        & \textstyle \sum_k T_{ik} Y_{ik} \ge \sum_k T_{ik} X_{ik}            && \forall i \quad\text{(throughput)} \\
        & \textstyle \sum_k Y_{ik} \le 1                                     && \forall i \quad\text{(time)} \\
        & \textstyle \sum_{ik} u_{jk} Y_{ik} \le \sum_{ik} u_{jk} X_{ik}      && \forall j \quad\text{(capacity)} \\
        & Y_{ik} = 0 \ \text{where}\ X_{ik} = 0

    v is the rate over the job's best, o falls from 1 with the age: so the fastest types go to the oldest jobs, and the
    vertex stays nearly the same when a job comes or goes. Of a vertex no more shares are positive than constraints hold
    with equality: jobs, types, and jobs that run all the time. Of more than `MOST` positive shares X is returned.

    Parameters
    ----------
    shares : X (m, K), fraction of time, 0 to 1.
    time_limit_s : seconds; None: unlimited.

    Raises
    ------
    SolverFailed
        The time limit came first.
    """
    used = np.where(shares > NOTHING, shares, 0)
    rows = np.flatnonzero((used > 0).sum(axis=1) > 1)
    pairs = int((used[rows] > 0).sum())
    if pairs <= rows.size + len(problem.capacity) or pairs > MOST:
        return shares
    few = shares.copy()
    few[rows] = _vertex(problem, rows, used[rows], time_limit_s)
    return few


def _vertex(problem: Problem, rows: Ints, X: Floats, time_limit_s: float | None) -> Floats:
    """The program above for some of the rows, whose shares are X."""
    T, u = problem.rate[rows], problem.usage
    i, k = X.nonzero()
    v = T / T.max(axis=1, keepdims=True)
    place = np.empty(len(rows))
    place[np.argsort(-problem.age_s[rows], kind="stable")] = np.arange(len(rows))
    o = 1 - place / len(rows)
    throughput, time = _each_jobs(i, v[i, k]), _each_jobs(i, np.ones(len(i)))
    least = (v * X).sum(axis=1) * (1 - SLACK)
    program = scipy.sparse.vstack([-throughput, time, scipy.sparse.csr_array(u[:, k])])
    found = maximize(
        o[i] * v[i, k] ** 2,
        program,
        np.concatenate([-least, np.maximum(X.sum(axis=1), 1), u @ X.sum(axis=0)]),
        time_limit_s=time_limit_s,
        tolerance=SLACK,
        interior=True,
    )
    Y = np.zeros_like(X)
    Y[i, k] = np.where(found.x > NOTHING, found.x, 0)
    return Y


def _each_jobs(i: Ints, of: Floats) -> Any:
    """Sparse matrix whose row i adds up what its columns weigh `of` them."""
    return scipy.sparse.csr_array((of, (i, np.arange(len(i)))))
