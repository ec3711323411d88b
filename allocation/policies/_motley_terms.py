"""What `motley` and `motley_static` share: parameters, terms of a value, and the assignment beside reservations."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

from numpy import isfinite, maximum, minimum, ones, ones_like, where

from allocation.decision import Decision
from allocation.policies.parameters import Range
from allocation.policies.plain_programs import all_jobs_sum, each_jobs_sum, solve_integer
from allocation.problem import Problem, isolated_rate
from allocation.reservations import ReservationRules, Reservations, reserve
from allocation.solvers.integer_assignment import allowed, assign_with_incumbents, oldest_first
from allocation.solvers.linear_program import SolverFailed
from allocation.time_budget import TimeBudget
from allocation.types import Bools, Floats, Ints

Gain = Callable[[Problem], Floats]
"""Value (m, K) of each configuration."""
HorizonS = Annotated[float, Range(60, 86_400, "seconds over which the cost of a restart is spread")]
Repaid = Annotated[float, Range(0, 10, "how many restarts a job must gain by another configuration")]
RhoMax = Annotated[
    float, Range(1, 1000, "age over the isolated time of the whole job beyond which the job gains value")
]
ScaleUp = Annotated[
    float,
    Range(0, 1024, "limit on replicas as a multiple of the most that jobs of its workload ever had; 0: no limit"),
]
Patience = Annotated[
    float,
    Range(0, 1000, "waiting time, as a multiple of the time that a job takes, from which it is due; 0: never"),
]
LeaseGrowth = Annotated[
    float, Range(0, 4, "factor by which a restart lengthens the lease of a job, up to the horizon; 0: no leases")
]
Gap = Annotated[float, Range(0, 0.5, "relative optimality gap at which the solver may stop")]
TimeLimitS = Annotated[float, Range(0.01, 600, "seconds after which the best feasible assignment so far is used")]

HOUR_S = 3600.0
LEAST_S = 1.0
"""Least remaining time of a job in seconds, so that its weight stays finite."""


def assign_beside_reservations(
    problem: Problem, gain: Gain, rules: ReservationRules, *, scale_up: float, gap: float, budget: TimeBudget
) -> Decision:
    """Maximise total value with leases and reservations, by HiGHS where the solver fails; ties favour older jobs."""
    reserved = _reserve(problem, rules, scale_up)
    fixed = reserved.fixed(problem)
    value = gain(fixed)
    try:
        decision = assign_with_incumbents(
            fixed, value, scale_up=scale_up, gap=gap, time_limit_s=budget.left_s(), kept=reserved.kept
        )
    except SolverFailed as failure:
        by_plain = plain_assignment(problem, gain, rules, scale_up=scale_up, gap=gap, budget=budget)
        decision = by_plain.in_place_of(failure)
    decision = oldest_first(fixed, decision)
    behind_h = problem.team_backlog_s / HOUR_S if rules.by_team else None
    return replace(
        decision, behind_h=behind_h, keeps_s=reserved.keeps_s, kept_for=reserved.kept_for, kept=reserved.kept
    )


def plain_assignment(
    problem: Problem, gain: Gain, rules: ReservationRules, *, scale_up: float, gap: float, budget: TimeBudget
) -> Decision:
    """Solve the same program by HiGHS, beside what is reserved."""
    reserved = _reserve(problem, rules, scale_up)
    fixed = reserved.fixed(problem)
    T, u, c = problem.rate, problem.usage, problem.capacity - reserved.kept
    return solve_integer(
        fixed,
        gain(fixed),
        [
            [each_jobs_sum(ones_like(T))],  # one configuration
            [all_jobs_sum(u, len(T))],  # capacity
        ],
        [ones(len(T)), c],
        usable=allowed(problem, scale_up),
        gap=gap,
        budget=budget,
    )


def _reserve(problem: Problem, rules: ReservationRules, scale_up: float) -> Reservations:
    return reserve(problem, left_s(problem, rules.horizon_s), allowed(problem, scale_up), rules)


def left_s(problem: Problem, horizon_s: float) -> Floats:
    """Seconds left r (m,) at the best rate."""
    so_far = problem.attained_gpu_s / problem.base_gpus
    left = problem.remaining_steps / problem.rate.max(axis=1)
    seconds: Floats = where(isfinite(left), left, so_far + horizon_s)
    return seconds


def spared_by_staying(problem: Problem, r: Floats, horizon_s: float) -> Floats:
    """Part s (m,) of the time up to the horizon that a restart would take later, if a running job were stopped."""
    part = minimum(problem.restart_s / minimum(horizon_s, problem.restart_s + r), 1)
    spared: Floats = where(problem.held >= 0, part, 0)
    return spared


def queues_h(problem: Problem, r: Floats, held: Bools, rho_max: float) -> Floats:
    """Virtual queues Q + Z (m, K) of each job's team and of the job."""
    Q = problem.team_backlog_s / HOUR_S
    while_leased = where(held & problem.leased[:, None], Q.max(initial=0), Q[:, None])
    of_all, of_as_old = (_whole_s(problem, r, m) for m in (len(problem.age_s), problem.as_old))
    whole_s = minimum(of_all, maximum(of_as_old, HOUR_S))
    Z = maximum(problem.age_s - rho_max * whole_s, 0) / maximum(whole_s, HOUR_S)
    queues: Floats = while_leased + Z[:, None]
    return queues


def _whole_s(problem: Problem, r: Floats, jobs: int | Ints) -> Floats:
    """Seconds (m,) that each job takes, from its first step to its last, on a 1/jobs part of the cluster."""
    alone = isolated_rate(problem.base_gpus, problem.base_rate, problem.capacity, jobs)
    whole_s: Floats = problem.isolated_s + r * problem.rate.max(axis=1) / alone
    return whole_s
