"""Maximum throughput per dollar (Gavel)."""

from numpy import ones, ones_like

from allocation.decision import Decision
from allocation.policies._shared import steps_per_dollar
from allocation.policies.plain_programs import all_jobs_sum, decision_of_shares, each_jobs_sum, solve
from allocation.problem import Problem
from allocation.solvers.linear_program import SolverFailed
from allocation.solvers.weighted_sum import maximize_weighted_sum
from allocation.time_budget import UNLIMITED, TimeBudget


def min_cost(problem: Problem) -> Decision:
    r"""Maximise steps per dollar: each job on the GPUs that are cheapest for it, as far as they suffice.

    Choose it when GPUs are paid by the hour and no job is urgent.

    .. math::
        \max_X\ \textstyle\sum_{ik} w_i\, \frac{T_{ik}}{\pi_k} X_{ik} \quad\text{s.t.}\quad
        & \textstyle \sum_k X_{ik} \le 1                      && \forall i \quad\text{(time)} \\
        & \textstyle \sum_i \sum_k u_{jk} X_{ik} \le c_j      && \forall j \quad\text{(capacity)}, \qquad
          \pi_k = \textstyle\sum_j u_{jk}\, \text{price}_j

    Gavel divides by the price of one GPU; a gang pays for all of its GPUs here. A GPU without a price counts as a
    hundredth of the cheapest one that has a price; where none has, all cost the same.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) steps/s, price_per_gpu_hour (n,), u = usage (n, K), c = capacity (n,) GPUs, w = weight (m,).

    Returns
    -------
    Decision
        shares X (m, K), fraction of time; prices (n,), gain per GPU; objective: weighted steps/s per dollar/h.
        At the round's time limit, the best feasible decision so far, with the status `limit`.

    Raises
    ------
    SolverFailed
        Neither the solver nor the plain program ended in time. Infeasible cannot happen: X = 0 is feasible.

    References
    ----------
    .. [1] Narayanan et al., OSDI 2020, "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
       section 4.2.
    """
    budget = TimeBudget.of(problem)
    b, T, u, c = steps_per_dollar(problem), problem.rate, problem.usage, problem.capacity
    try:
        return maximize_weighted_sum(b, T, u, c, budget=budget).decision
    except SolverFailed as failure:
        return plain_program(problem, budget=budget).in_place_of(failure)


def plain_program(problem: Problem, *, budget: TimeBudget = UNLIMITED) -> Decision:
    """Solve the program above by HiGHS."""
    b, T, u, c = steps_per_dollar(problem), problem.rate, problem.usage, problem.capacity
    best = solve(
        b.ravel(),
        [
            [each_jobs_sum(ones_like(T))],  # time
            [all_jobs_sum(u, len(T))],  # capacity
        ],
        [ones(len(T)), c],
        usable=T > 0,
        budget=budget,
    )
    return decision_of_shares(best, u, c)
