"""Maximum total throughput (Gavel)."""

from typing import Annotated

from numpy import ones, ones_like

from allocation.decision import Decision
from allocation.policies.parameters import Switch
from allocation.policies.plain_programs import all_jobs_sum, decision_of_shares, each_jobs_sum, solve
from allocation.problem import Problem
from allocation.solvers.linear_program import SolverFailed
from allocation.solvers.weighted_sum import maximize_weighted_sum
from allocation.time_budget import UNLIMITED, TimeBudget
from allocation.types import Floats


def max_sum_throughput(
    problem: Problem,
    *,
    normalised: Annotated[
        bool, Switch("count normalised throughput, so that steps of different models are comparable")
    ] = False,
) -> Decision:
    r"""Maximise the weighted sum of the jobs' throughputs.

    Choose it when the cluster has one owner who wants the most work done; jobs that gain little may starve. Steps of
    different models are hardly comparable: set `normalised` then.

    .. math::
        \max_X\ \textstyle\sum_{ik} w_i\, b_{ik} X_{ik} \quad\text{s.t.}\quad
        & \textstyle \sum_k X_{ik} \le 1                      && \forall i \quad\text{(time)} \\
        & \textstyle \sum_i \sum_k u_{jk} X_{ik} \le c_j      && \forall j \quad\text{(capacity)}

    with b = T, as published, or, normalised, b = T g / p.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) steps/s, u = usage (n, K) GPUs, c = capacity (n,) GPUs, w = weight (m,), g = base_gpus (m,),
        p = base_rate (m,) steps/s on the average GPU.
    normalised : whether steps count by the work in them.

    Returns
    -------
    Decision
        shares X (m, K), fraction of time; prices (n,), gain per GPU; objective: weighted steps/s, or average GPUs.
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
    b, budget = _worth(problem, normalised=normalised), TimeBudget.of(problem)
    try:
        return maximize_weighted_sum(b, problem.rate, problem.usage, problem.capacity, budget=budget).decision
    except SolverFailed as failure:
        return plain_program(problem, normalised=normalised, budget=budget).in_place_of(failure)


def plain_program(problem: Problem, *, normalised: bool = False, budget: TimeBudget = UNLIMITED) -> Decision:
    """Solve the program above by HiGHS."""
    T, u, c = problem.rate, problem.usage, problem.capacity
    best = solve(
        _worth(problem, normalised=normalised).ravel(),
        [
            [each_jobs_sum(ones_like(T))],  # time
            [all_jobs_sum(u, len(T))],  # capacity
        ],
        [ones(len(T)), c],
        usable=T > 0,
        budget=budget,
    )
    return decision_of_shares(best, u, c)


def _worth(problem: Problem, *, normalised: bool) -> Floats:
    """Value (m, K) of a share: w b."""
    T, g, w, p = problem.rate, problem.base_gpus, problem.weight, problem.base_rate
    worth: Floats = T * (w * g / p if normalised else w)[:, None]
    return worth
