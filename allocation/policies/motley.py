"""Minimum mean completion time with restart costs, by integer assignment (Motley's own)."""

from typing import Annotated

from numpy import arange, inf, isfinite, maximum, minimum, ones, ones_like, where

from allocation.decision import Decision
from allocation.policies.parameters import Within
from allocation.policies.plain_programs import all_jobs_sum, each_jobs_sum, solve_integer
from allocation.problem import Problem
from allocation.solvers.integer_assignment import allowed, assign_with_incumbents
from allocation.solvers.linear_program import SolverFailed
from allocation.time_budget import UNLIMITED, TimeBudget
from allocation.types import Floats

LEAST_S = 1.0
"""Least remaining time of a job in seconds, so that its weight stays finite."""


def motley(
    problem: Problem,
    *,
    short_first: Annotated[
        float, Within(0, 1, "how much more short remaining jobs count; 0: all jobs count the same")
    ] = 0.2,
    horizon_s: Annotated[float, Within(60, 86_400, "seconds over which the cost of a restart is spread")] = 900.0,
    begin: Annotated[float, Within(0, 10, "value of running at all, relative to the value of full speed (1)")] = 1.0,
    scale_up: Annotated[
        float,
        Within(0, 1024, "limit on GPUs as a multiple of the most that jobs of its workload ever had; 0: no limit"),
    ] = 0.0,
    gap: Annotated[float, Within(0, 0.5, "relative optimality gap at which the solver may stop")] = 1e-3,
    time_limit_s: Annotated[
        float, Within(0.01, 600, "seconds after which the best feasible assignment so far is used")
    ] = 20.0,
) -> Decision:
    r"""Assign the configurations that save the most time; move a job only if it gains more than a restart costs.

    Choose it when jobs are elastic, declare their work, and should finish early on average. A job starts in the
    size that suits it if its workload is known; it waits while a much shorter job grows.

    .. math::
        \max_{X \in \{0,1\}}\ \textstyle\sum_i w_i \left(\frac{r_i}{1\,\mathrm{h}}\right)^{-q} \sum_k (a + v_{ik})
        X_{ik} \quad\text{s.t.}\quad
        & \textstyle \sum_k X_{ik} \le 1                      && \forall i \quad\text{(one configuration)} \\
        & \textstyle \sum_i \sum_k u_{jk} X_{ik} \le c_j      && \forall j \quad\text{(capacity)}

    A second in configuration k saves job i the time of the same steps at its best rate; a restart
    costs its part of the time until the job completes or the horizon H is reached:

    .. math::
        r_i = \frac{S_i}{\max_k T_{ik}}, \qquad
        v_{ik} = \frac{T_{ik}}{\max_k T_{ik}} \left(1 - \frac{R_{ik}}{\min(H,\ R_{ik} + S_i / T_{ik})}\right), \qquad
        R_{ik} = \begin{cases} 0 & k \text{ is held} \\ R_i & \text{else} \end{cases}

    A job of unknown length is expected to run as long again as it has run, plus the horizon.
    A locked job keeps what it holds, and ties favour running jobs. Where rates are guesses, `scale_up` limits how
    many times the GPUs of earlier jobs of its workload a job may get.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) goodput, u = usage (n, K) GPUs, c = capacity (n,) GPUs, w = weight (m,), held, locked (m,),
        S = remaining_steps (m,), R = restart_s (m,) seconds, attained_gpu_s, base_gpus (m,), most_gpus (m,) that jobs
        of its workload ever had.
    short_first, begin, horizon_s : q, a and H.
    scale_up, gap, time_limit_s : limit of growth, relative optimality gap, seconds.

    Returns
    -------
    Decision
        assignment (m,); objective and bound as in the formula; prices (n,) and value (m, K) in its unit: what a GPU, or
        a configuration, adds to the sum. Where `time_limit_s` or the round's time limit comes before the gap is
        reached, the feasible answer by prices, with the status `limit`.

    References
    ----------
    .. [1] Subramanya et al., SOSP 2023, "Sia: Heterogeneity-aware, goodput-optimized ML-cluster scheduling",
       section 3.4 (the program; other values).
    .. [2] Berg, Vesilo and Harchol-Balter, Performance Evaluation 2020, "heSRPT: Parallel scheduling to minimize mean
       slowdown" (why short jobs first, and not alone).
    """
    budget = TimeBudget.of(problem).at_most(time_limit_s)
    gain = _gain(problem, short_first=short_first, horizon_s=horizon_s, begin=begin)
    try:
        return assign_with_incumbents(problem, gain, scale_up=scale_up, gap=gap, time_limit_s=time_limit_s)
    except SolverFailed as failure:
        return plain_program(
            problem,
            short_first=short_first,
            horizon_s=horizon_s,
            begin=begin,
            scale_up=scale_up,
            gap=gap,
            budget=budget,
        ).in_place_of(failure)


def plain_program(
    problem: Problem,
    *,
    short_first: float = 0.2,
    horizon_s: float = 900.0,
    begin: float = 1.0,
    scale_up: float = 0.0,
    gap: float = 1e-3,
    budget: TimeBudget = UNLIMITED,
) -> Decision:
    """Solve the program above by HiGHS."""
    T, u, c = problem.rate, problem.usage, problem.capacity
    gain = _gain(problem, short_first=short_first, horizon_s=horizon_s, begin=begin)
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
    )


def _gain(problem: Problem, *, short_first: float, horizon_s: float, begin: float) -> Floats:
    """Value of each configuration (m, K)."""
    T, w, held = problem.rate, problem.weight, problem.held
    best = T.max(axis=1)
    r = maximum(_left_s(problem, best, horizon_s), LEAST_S)
    stays = arange(T.shape[1]) == held[:, None]
    v = (T / best[:, None]) * (1 - _lost(problem, r * best, stays, horizon_s))
    gain: Floats = (w * (r / 3600) ** -short_first)[:, None] * (begin + v)
    return gain


def _left_s(problem: Problem, best: Floats, horizon_s: float) -> Floats:
    """Seconds left r (m,) at the best rate, and that rate (m,)."""
    so_far = problem.attained_gpu_s / problem.base_gpus
    left: Floats = where(isfinite(problem.remaining_steps), problem.remaining_steps / best, so_far + horizon_s)
    return left


def _lost(problem: Problem, steps: Floats, stays: Floats, horizon_s: float) -> Floats:
    """Fraction (m, K) of the remaining time that a restart takes, with so many steps (m,) left."""
    R = where(stays, 0, problem.restart_s[:, None])
    alone_s = where(problem.rate > 0, steps[:, None] / where(problem.rate > 0, problem.rate, 1), inf)
    part: Floats = minimum(R / minimum(horizon_s, R + alone_s), 1)
    return part
