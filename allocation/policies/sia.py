"""Goodput-optimal elastic allocation (Sia)."""

from collections.abc import Callable
from typing import Annotated

from numpy import inf, maximum, minimum, ones, ones_like, where

from allocation.decision import Decision
from allocation.policies.parameters import Range, Switch
from allocation.policies.plain_programs import all_jobs_sum, each_jobs_sum, solve_integer
from allocation.problem import Problem
from allocation.restart_cost import sia_restart_factor
from allocation.solvers.integer_assignment import allowed, assign_with_incumbents
from allocation.solvers.linear_program import SolverFailed
from allocation.time_budget import UNLIMITED, TimeBudget
from allocation.types import Floats

MOST_COST = 3000.0
"""Sia's bound on the cost of a nearly worthless configuration."""


def sia(
    problem: Problem,
    *,
    power: Annotated[float, Range(-4, 1, "fairness power p: the lower below 0, the more slow jobs count")] = -0.5,
    waiting: Annotated[
        float, Range(1.05, 100, "cost of a waiting job, relative to running on its slowest single GPU (1)")
    ] = 1.1,
    scale_up: Annotated[
        float,
        Range(0, 1024, "limit on replicas as a multiple of the most that jobs of its workload ever had; 0: no limit"),
    ] = 2.0,
    gap: Annotated[float, Range(0, 0.5, "relative optimality gap at which the solver may stop")] = 1e-3,
    time_limit_s: Annotated[
        float, Range(0.01, 600, "seconds after which the best feasible assignment so far is used")
    ] = 20.0,
    rounded: Annotated[bool, Switch("round costs to 2 decimals, as the published code does")] = False,
) -> Decision:
    r"""Assign the configurations that maximise total normalised goodput, discounted by the cost of restarts.

    Choose it when jobs are elastic: they grow while GPUs are free and shrink when other jobs arrive. At the published
    cost of waiting, 1.1, growing counts more than starting another job; from 1.5 on, identical jobs all start first.

    .. math::
        \min_{X \in \{0,1\}}\ \textstyle\sum_i w_i \left( \sum_k A_{ik} X_{ik} + \lambda \left(1 - \sum_k X_{ik}\right)
        \right) \quad\text{s.t.}\quad
        & \textstyle \sum_k X_{ik} \le 1                      && \forall i \quad\text{(one configuration)} \\
        & \textstyle \sum_i \sum_k u_{jk} X_{ik} \le c_j      && \forall j \quad\text{(capacity)}

    with the goodput of job i relative to its smallest one, scaled to the same GPUs and discounted by the restart cost:

    .. math::
        A_{ik} = \left( f_{ik}\, s_i\, \frac{T_{ik}}{\min_k T_{ik}} \right)^{p}, \qquad
        f_{ik} = \begin{cases} 1 & k \text{ is held, or nothing is, or } t_i < R_i \\
        \frac{\max(t_i - N_i R_i,\ 0)}{t_i + R_i} & \text{else} \end{cases}

    For p > 0 the sum is maximised, and a job that waits costs -lambda; for p = 0 only the number of jobs counts. A
    locked job keeps what it holds, and ties favour running jobs. No job gets more than `scale_up` times the replicas
    that jobs of its workload ever had, or its fewest.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) goodput, u = usage (n, K) GPUs, c = capacity (n,) GPUs, w = weight (m,), held, locked (m,),
        t = age_s (m,), N = restarts (m,), R = restart_s (m,), s = base_gpus (m,),
        most_replicas (m,) that jobs of its workload ever had.
    power, waiting : p and lambda.
    scale_up, gap, time_limit_s, rounded : limit of growth, relative gap, seconds, Sia's rounding.

    Returns
    -------
    Decision
        assignment (m,); objective and bound as in the formula; prices (n,) and value (m, K) in its unit: what a GPU, or
        a configuration, takes off the sum (or, for p > 0, adds to it). Where `time_limit_s` or the round's time
        limit comes before the gap is reached, the feasible answer by prices, with the status `limit`.

    References
    ----------
    .. [1] Subramanya et al., SOSP 2023, "Sia: Heterogeneity-aware, goodput-optimized ML-cluster scheduling",
       section 3.4.
    """
    budget = TimeBudget.of(problem).at_most(time_limit_s)
    gain, objective = _gain(problem, power=power, waiting=waiting, rounded=rounded)
    try:
        return assign_with_incumbents(
            problem, gain, scale_up=scale_up, gap=gap, time_limit_s=time_limit_s, objective=objective
        )
    except SolverFailed as failure:
        return plain_program(
            problem,
            power=power,
            waiting=waiting,
            scale_up=scale_up,
            gap=gap,
            rounded=rounded,
            budget=budget,
        ).in_place_of(failure)


def plain_program(
    problem: Problem,
    *,
    power: float = -0.5,
    waiting: float = 1.1,
    scale_up: float = 2.0,
    gap: float = 1e-3,
    rounded: bool = False,
    budget: TimeBudget = UNLIMITED,
) -> Decision:
    """Solve the program above by HiGHS, as the gain of each configuration over all jobs waiting."""
    T, u, c = problem.rate, problem.usage, problem.capacity
    gain, objective = _gain(problem, power=power, waiting=waiting, rounded=rounded)
    return solve_integer(
        problem,
        gain,
        [
            [each_jobs_sum(ones_like(T))],  # one configuration
            [all_jobs_sum(u, len(T))],  # capacity
        ],
        [ones(len(T)), c],
        usable=allowed(problem, scale_up),
        gap=gap,
        budget=budget,
        objective=objective,
    )


def _gain(problem: Problem, *, power: float, waiting: float, rounded: bool) -> tuple[Floats, Callable[[float], float]]:
    """Gain (m, K) of each configuration over waiting, and the map from the total gain to the objective."""
    A, w = _costs(problem, power), problem.weight
    A = A.round(2) if rounded else A
    gain = w[:, None] * (waiting - A if power < 0 else waiting + A)
    idle, sign = (waiting * float(w.sum()), -1) if power < 0 else (-waiting * float(w.sum()), 1)
    return gain, lambda gained: idle + sign * gained


def _costs(problem: Problem, power: float) -> Floats:
    """Cost A (m, K); infeasible configurations have the highest cost."""
    T = problem.rate
    least = where(T > 0, T, inf)
    s = problem.base_gpus
    goodput = sia_restart_factor(problem) * T * (s / least.min(axis=1))[:, None]
    cost: Floats = minimum(maximum(goodput, 1e-12) ** power, MOST_COST)
    return cost
