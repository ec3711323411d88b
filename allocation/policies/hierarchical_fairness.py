"""Hierarchical fairness: weighted max-min between teams; fairness or FIFO within each team (Gavel)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Literal

from numpy import (
    append,
    arange,
    argmax,
    array,
    bincount,
    clip,
    column_stack,
    diff,
    divide,
    flatnonzero,
    inf,
    lexsort,
    maximum,
    minimum,
    ones,
    ones_like,
    split,
    unique,
    where,
    zeros,
    zeros_like,
)

from allocation.decision import Decision
from allocation.policies.parameters import Choice
from allocation.policies.plain_programs import Level, all_jobs_sum, each_jobs_sum, lexicographic, solve
from allocation.problem import Problem
from allocation.solvers.linear_program import SolverFailed
from allocation.solvers.presolve import group_identical
from allocation.solvers.water_filling import RequiredWithin, fill_levels
from allocation.time_budget import UNLIMITED, TimeBudget
from allocation.types import Bools, Floats, Ints

SLIGHTLY = 1e-6
"""Relative tolerance within which a job counts as at its highest rate."""


def hierarchical_fairness(
    problem: Problem,
    *,
    within: Annotated[
        Literal["fairness", "fifo"], Choice("whether a team's jobs share the team's part or are served by age")
    ] = "fairness",
) -> Decision:
    r"""Raise all teams together, each by its weight; what a job cannot use goes first to other jobs of its team.

    Choose it when teams should get work by their weights, however many jobs they have; jobs of a team share what it
    gets, or queue for it.

    At level z the normalised rates of a team's jobs sum to its weight times z, as long as they can:

    .. math::
        \max_{X,\,z}\ z \quad\text{s.t.}\quad
        & \textstyle r_i(z) - \sum_k a_{ik} X_{ik} \le 0      && \forall i \quad\text{(what it is due)} \\
        & \textstyle \sum_k X_{ik} \le 1                      && \forall i \quad\text{(time)} \\
        & \textstyle \sum_i \sum_k u_{jk} X_{ik} \le c_j      && \forall j \quad\text{(capacity)}, \qquad
          a_{ik} = \frac{g_i}{p_i}\, T_{ik}

    .. math::
        \textstyle\sum_{i \in e} r_i(z) = \min\left(W_e\, z,\ \sum_{i \in e} b_i\right), \qquad W_e = \sum_{i \in e} w_i

    b is the highest rate that a job can reach, at first its rate at full time. The jobs of a team rise by weight, or
    one after the other by age:

    .. math::
        r_i(z) = \min(b_i,\ w_i\, \theta_e(z)) \qquad\text{or}\qquad
        r_i(z) = \min\left(b_i,\ \max\left(0,\ W_e\, z - \textstyle\sum_{k \text{ before } i} b_k\right)\right)

    A job that capacity stops at the best z stays there: its rate becomes its b, so that its part of the team's
    weight goes to the team's other jobs, and the level rises again until no job can rise. A team's weight is the sum
    of its jobs' weights, over which the service has split it.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) steps/s, u = usage (n, K) GPUs, c = capacity (n,) GPUs, w = weight (m,), e = team (m,),
        g = base_gpus (m,), p = base_rate (m,) steps/s on the average GPU, age_s (m,).
    within : how the jobs of a team share.

    Returns
    -------
    Decision
        shares X (m, K), fraction of time, 0 to 1; objective z, the level that all teams reach before capacity
        first stops a job; prices (n,), gain in z per GPU.

    Raises
    ------
    SolverFailed
        Neither the solver nor the plain program ended in time. Infeasible cannot happen: X = 0, z = 0 is feasible.

    References
    ----------
    .. [1] Narayanan et al., OSDI 2020, "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
       section 4.3.
    """
    budget = TimeBudget.of(problem)
    T, g, w, p = problem.rate, problem.base_gpus, problem.weight, problem.base_rate
    a, e = T * (g / p)[:, None], unique(problem.team, return_inverse=True)[1]
    queues = within == "fifo"
    classes = group_identical(column_stack([a, w, e, arange(len(w)) if queues else zeros_like(w)]))
    rows, N = classes.first, classes.count
    a, w, e, age_s = a[rows], w[rows], e[rows], problem.age_s[rows]
    due = _one_by_one(w, e, age_s) if queues else _together(w, e, N)
    ceiling = (bincount(e, N * a.max(axis=1)) / bincount(e, N * w))[e]
    try:
        best = fill_levels(a, problem.usage, problem.capacity, due, ceiling=ceiling, classes=classes, budget=budget)
    except SolverFailed as failure:
        return plain_program(problem, within=within, budget=budget).in_place_of(failure)
    return best.decision


def plain_program(
    problem: Problem, *, within: str = "fairness", levels: int | None = None, budget: TimeBudget = UNLIMITED
) -> Decision:
    """Solve level by level: unlimited jobs rise at speeds v, limited jobs keep their rate b."""
    u, c, w, e = problem.usage, problem.capacity, problem.weight, unique(problem.team, return_inverse=True)[1]
    a = problem.rate * (problem.base_gpus / problem.base_rate)[:, None]
    rates, times, used = each_jobs_sum(a), each_jobs_sum(ones_like(a)), all_jobs_sum(u, len(a))
    W = bincount(e, w).astype(float)

    def highest(rising: Bools, kept: Floats) -> Level:
        v = _oldest(rising, W, e, problem.age_s) if within == "fifo" else _by_weight(rising, W, w, e)
        best = solve(
            append(zeros(a.size), 1),
            [
                [-rates, v[:, None]],  # what it is due: kept + v dz
                [times, None],  # time
                [used, None],  # capacity
            ],
            [-kept, ones(len(a)), c],
            usable=a > 0,
            budget=budget,
        )
        z = float((bincount(e, kept) / W).max()) + best.value
        return Level(z, kept + v * best.value, best)

    best, stopped_at = lexicographic(highest, a, u, c, levels=levels)
    full = (a * best.shares).sum(axis=1) >= a.max(axis=1) * (1 - SLIGHTLY)
    of_team = array([stopped_at[e == team].max() for team in range(len(W))])
    z = float(minimum(where(full, inf, stopped_at).min(), of_team.min()))
    return replace(best, level=z, bound=z).decision


def _by_weight(rising: Bools, W: Floats, w: Floats, e: Ints) -> Floats:
    """Speeds (m,) of jobs that rise by weight; those of a team sum to its weight."""
    risen = bincount(e, w * rising, len(W))[e]
    return where(rising, W[e] * w / where(rising, risen, 1), 0)


def _oldest(rising: Bools, W: Floats, e: Ints, age_s: Floats) -> Floats:
    """Speeds (m,) if the oldest job of each team that can still rise gets the team's whole share."""
    v = zeros(len(e))
    for team in unique(e[rising]):
        v[argmax(where(rising & (e == team), age_s, -1))] = W[team]
    return v


def _together(w: Floats, e: Ints, N: Ints) -> RequiredWithin:
    """Jobs of a team rise by weight; a job at its b leaves its part to the others."""
    W = bincount(e, N * w)

    def of_those_who_reach(b: Floats) -> Callable[[float], Floats]:
        full_at = zeros_like(b)
        for rows in _by_team(e, b / w):
            full, part = (N * b)[rows].cumsum(), (N * w)[rows].cumsum()
            full_at[rows] = (full + (b / w)[rows] * (part[-1] - part)) / part[-1]

        def due(z: float) -> Floats:
            full = z >= full_at
            left = maximum(W * z - bincount(e, N * b * full, len(W)), 0)
            open_w = bincount(e, N * w * ~full, len(W))
            theta = divide(left, open_w, out=zeros_like(W), where=open_w > 0)
            rates: Floats = where(full, b, minimum(b, w * theta[e]))
            return rates

        return due

    return of_those_who_reach


def _one_by_one(w: Floats, e: Ints, age_s: Floats) -> RequiredWithin:
    """The oldest job of a team gets the team's share up to its b, then the next job."""
    W = bincount(e, w)[e]

    def of_those_who_reach(b: Floats) -> Callable[[float], Floats]:
        before = zeros_like(b)
        for rows in _by_team(e, -age_s):
            before[rows] = b[rows].cumsum() - b[rows]
        return lambda z: clip(W * z - before, 0, b)

    return of_those_who_reach


def _by_team(e: Ints, key: Floats) -> list[Ints]:
    """Rows of each team, sorted by the key."""
    turn = lexsort((key, e))
    return split(turn, flatnonzero(diff(e[turn])) + 1)
