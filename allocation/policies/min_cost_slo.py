"""Maximum throughput per dollar subject to deadlines (Gavel)."""

import scipy
from numpy import append, clip, divide, inf, isfinite, maximum, minimum, ones, ones_like, where, zeros, zeros_like

from allocation.decision import Decision
from allocation.policies._shared import steps_per_dollar
from allocation.policies.plain_programs import all_jobs_sum, decision_of_shares, each_jobs_sum, solve
from allocation.problem import Problem
from allocation.solvers.linear_program import SolverFailed
from allocation.solvers.weighted_sum import SLACK, maximize_weighted_sum, minimize_shortfall
from allocation.time_budget import UNLIMITED, TimeBudget
from allocation.types import Floats

ENOUGH = 1e7
"""Times the rate in time beyond which it makes no difference how fast a job is: it needs next to no time there."""


def min_cost_slo(problem: Problem) -> Decision:
    r"""Maximise steps per dollar among the allocations that meet the deadlines.

    Choose it when GPUs are paid by the hour and some jobs have deadlines.

    .. math::
        \max_X\ \textstyle\sum_{ik} w_i\, \frac{T_{ik}}{\pi_k} X_{ik} \quad\text{s.t.}\quad
        & \textstyle \sum_k T_{ik} X_{ik} \ge l_i = \frac{r_i}{\text{deadline}_i}  && \forall i \quad\text{(in time)} \\
        & \textstyle \sum_k X_{ik} \le 1                      && \forall i \quad\text{(time)} \\
        & \textstyle \sum_i \sum_k u_{jk} X_{ik} \le c_j      && \forall j \quad\text{(capacity)}

    If the deadlines cannot all be met, the required rates are reduced by the smallest sum of
    shortfalls (Gavel then drops all deadlines). A deadline that has passed or is out of reach is ignored.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) steps/s, r = remaining_steps (m,), deadline_s (m,) seconds from now, price_per_gpu_hour (n,),
        u = usage (n, K) GPUs, c = capacity (n,) GPUs, w = weight (m,).

    Returns
    -------
    Decision
        shares X (m, K), fraction of time; prices (n,), gain per GPU; objective: weighted steps/s per dollar/h.
        At the round's time limit, the best feasible decision so far, with the status `limit`; its bound is that for
        the rates that were required then.

    Raises
    ------
    SolverFailed
        Neither the solver nor the plain program ended in time. Infeasible cannot happen: some X reaches the required
        rates.

    References
    ----------
    .. [1] Narayanan et al., OSDI 2020, "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
       section 4.2.
    """
    b, T, u, c = steps_per_dollar(problem), problem.rate, problem.usage, problem.capacity
    budget = TimeBudget.of(problem)
    try:
        part, wanted = _part_of_wanted(T, _rates_in_time(problem))
        half = budget.at_most(problem.solve_limit_s / 2)
        least = minimize_shortfall(part, u, c, wanted, budget=half)
        return maximize_weighted_sum(b, part, u, c, least=least, budget=budget).decision
    except SolverFailed as failure:
        return plain_program(problem, budget=budget).in_place_of(failure)


def _part_of_wanted(T: Floats, l: Floats) -> tuple[Floats, Floats]:  # noqa: E741  # as in the maths
    """Rates (m, K) in units of each job's rate in time, and that rate (m,), 1 or 0: HiGHS's tolerances are absolute."""
    bound = l > 0
    return minimum(T / where(bound, l, 1)[:, None], where(bound, ENOUGH, inf)[:, None]), where(bound, 1.0, 0.0)


def plain_program(problem: Problem, *, budget: TimeBudget = UNLIMITED) -> Decision:
    """Minimise the sum of shortfalls y, then solve the program above for the reduced rates, by HiGHS."""
    T, u, c, l = problem.rate, problem.usage, problem.capacity, _rates_in_time(problem)  # noqa: E741  # as in the maths
    m = len(T)
    rates, times, used = each_jobs_sum(T), each_jobs_sum(ones_like(T)), all_jobs_sum(u, m)
    nearest = solve(
        append(zeros(T.size), -ones(m)),
        [
            [-rates, -scipy.sparse.diags_array(l)],  # in time, but for what is short
            [times, None],  # time
            [used, None],  # capacity
            [None, scipy.sparse.eye_array(m)],  # nothing is shorter than all of it
        ],
        [-l, ones(m), c, ones(m)],
        usable=T > 0,
        budget=budget,
    )
    best = solve(
        steps_per_dollar(problem).ravel(),
        [
            [-rates],  # in time
            [times],  # time
            [used],  # capacity
        ],
        [-(1 - SLACK) * l * clip(1 - nearest.x[T.size :], 0, 1), ones(m), c],
        usable=T > 0,
        budget=budget,
    )
    return decision_of_shares(best, u, c)


def _rates_in_time(problem: Problem) -> Floats:
    """Rates (m,) that meet the deadlines; 0 without a deadline, or where it cannot be met even alone."""
    r, d = problem.remaining_steps, problem.deadline_s
    bound = isfinite(r) & isfinite(d) & (d > 0)
    rate = divide(where(bound, r, 0), d, out=zeros_like(r), where=bound)
    return where(rate <= problem.rate.max(axis=1, initial=0), maximum(rate, 0), 0.0)
