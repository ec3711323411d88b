"""Finish-time fairness: minimise the worst rho (Themis), as Gavel's program."""

from dataclasses import replace
from typing import Annotated

import scipy
from numpy import (
    append,
    arange,
    column_stack,
    errstate,
    isfinite,
    maximum,
    minimum,
    ones,
    ones_like,
    where,
    zeros,
)

from allocation.decision import Decision
from allocation.policies.parameters import Switch
from allocation.policies.plain_programs import Level, all_jobs_sum, each_jobs_sum, lexicographic, solve
from allocation.problem import Problem, isolated_rate, sharing_of
from allocation.solvers.linear_program import Solution, SolverFailed
from allocation.solvers.max_min_level import RequiredRate
from allocation.solvers.presolve import group_identical
from allocation.solvers.water_filling import each_alone, fill_levels
from allocation.space_sharing.water_filling import PACKED, pack_levels
from allocation.time_budget import UNLIMITED, TimeBudget
from allocation.types import Bools, Floats, Ints

SLIGHTLY = 1e-6
"""Relative step below a level for the numerical derivative of its cost."""


def finish_time_fairness(
    problem: Problem, *, packed: Annotated[bool, Switch(PACKED, simulated=True)] = False
) -> Decision:
    r"""Minimise the worst ratio of a job's completion time to the one on its own 1/m part of the cluster.

    Choose it when people compare their completion times with those on a private part of the cluster.

    .. math::
        \min_{X}\ \max_i\ \rho_i = \frac{t_i + r_i / \sum_k T_{ik} X_{ik}}{I_i + r_i / S_i}
        \quad\text{s.t.}\quad
        & \textstyle \sum_k X_{ik} \le 1                      && \forall i \quad\text{(time)} \\
        & \textstyle \sum_i \sum_k u_{jk} X_{ik} \le c_j      && \forall j \quad\text{(capacity)}, \qquad
          S_i = p_i \min\!\left(1, \tfrac{\sum c}{m\,g_i}\right)

    Solved by levels z = 1/rho, where job i needs the rate

    .. math::
        \textstyle\sum_k T_{ik} X_{ik} \ \ge\ \frac{z\, r_i}{I_i + r_i / S_i - z\, t_i}

    and, where its length is unknown, the limit of that, :math:`z\, S_i`. A rate beyond a job's reach is not
    required of it. Further levels follow, so that the capacity left by the worst-off jobs is used. Weights are ignored.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) steps/s, r = remaining_steps (m,), t = age_s (m,), I = isolated_s (m,) seconds that the work so
        far would have taken alone, u = usage (n, K) GPUs, c = capacity (n,) GPUs, g = base_gpus, p = base_rate (m,).
    packed : bool
        Also choose the time (pairs) that two jobs share GPUs, by their workload and kept_rate (`SpaceSharing`): see
        `allocation.space_sharing.column_generation`. The ten lowest levels are exact; above them
        no job gets less than the tenth level.

    Returns
    -------
    Decision
        shares X (m, K), fraction of time; objective the highest rho, to be minimised; prices (n,), the decrease of rho
        per additional GPU, of the jobs that capacity limits first.

    Raises
    ------
    SolverFailed
        Neither the solver nor the plain program ended in time. Infeasible cannot happen: X = 0, z = 0 is feasible.

    References
    ----------
    .. [1] Mahajan et al., NSDI 2020, "Themis: Fair and Efficient GPU Cluster Scheduling", section 3.
    .. [2] Narayanan et al., OSDI 2020, "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
       section 4.2.
    """
    budget = TimeBudget.of(problem)
    workload = [sharing_of(problem).workload] if packed else []
    classes = group_identical(column_stack([problem.rate, *_columns(problem), *workload]))
    need, ceiling = _need(problem, classes.first)
    if packed:
        return pack_levels(problem, classes, need, ceiling=ceiling).inverse_decision
    T, u, c = problem.rate[classes.first], problem.usage, problem.capacity
    try:
        best = fill_levels(T, u, c, each_alone(need), ceiling=ceiling, classes=classes, budget=budget)
    except SolverFailed as failure:
        return plain_program(problem, budget=budget).in_place_of(failure)
    return best.inverse_decision


def plain_program(problem: Problem, *, levels: int | None = None, budget: TimeBudget = UNLIMITED) -> Decision:
    """Solve each level, or at most `levels` of them, by bisection; a level is feasible if t = 1 of all needs is."""
    T, u, c = problem.rate, problem.usage, problem.capacity
    rates, times, used = each_jobs_sum(T), each_jobs_sum(ones_like(T)), all_jobs_sum(u, len(T))
    need, ceiling = _need(problem, arange(len(T)))

    def part_of(needed: Floats, kept: Floats) -> Solution:
        return solve(
            append(zeros(T.size), 1),
            [
                [-rates, needed[:, None]],  # t r_i(z), or what is kept
                [times, None],  # time
                [used, None],  # capacity
            ],
            [-kept, ones(len(T)), c],
            usable=T > 0,
            budget=budget,
        )

    def highest(rising: Bools, kept: Floats) -> Level:
        def at(z: float) -> Solution:
            return part_of(where(rising, need(z), 0), where(rising, 0, kept))

        brentq = scipy.optimize.brentq
        most = float(ceiling[rising].min())
        low = most * float(minimum(at(most).value, 1))
        z = most if low >= most else float(brentq(lambda z: at(z).value - 1, low * (1 - 1e-9), most, rtol=1e-12))
        best, slower = at(z), where(rising, need(z * (1 - SLIGHTLY)), 0)
        growth = best.duals[: len(T)] @ (where(rising, need(z), 0) - slower) / (SLIGHTLY * z)
        prices = best.duals[-c.size :] / growth
        duals = append(best.duals[: -c.size], prices)
        return Level(z, where(rising, need(z), kept), replace(best, duals=duals))

    return lexicographic(highest, T, u, c, levels=levels)[0].inverse_decision


def _columns(problem: Problem) -> tuple[Floats, Floats, Floats, Floats]:
    """Steps left r (m,), age t (m,), isolated duration I + r / S (m,) in seconds, and isolated rate S (m,)."""
    p = problem.base_rate
    S = isolated_rate(problem.base_gpus, p, problem.capacity)
    r = maximum(problem.remaining_steps, p)  # what is at its last step still has a second to go
    return r, problem.age_s, problem.isolated_s + r / S, S


def _need(problem: Problem, rows: Ints) -> tuple[RequiredRate, Floats]:
    """Rates that rows need at a level z, and the level at which each needs its highest rate."""
    r, t, alone_s, S = (column[rows] for column in _columns(problem))
    known, fastest = isfinite(r), problem.rate[rows].max(axis=1)
    steps, whole_s, past_s = where(known, r, S), where(known, alone_s, 1), where(known, t, 0)

    def need(z: float) -> Floats:
        with errstate(divide="ignore"):  # what is due at once takes any rate
            wanted: Floats = z * steps / maximum(whole_s - z * past_s, 0)
        return wanted

    ceiling = where(known, alone_s, fastest / S) / where(known, t + where(known, r, 0) / fastest, 1)
    return need, ceiling
