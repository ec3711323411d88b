"""Terms that `motley` and `motley_plan` share: time left, virtual queues, what is spared by not being stopped."""

from numpy import isfinite, maximum, minimum, where

from allocation.problem import Problem, isolated_rate
from allocation.types import Bools, Floats, Ints

HOUR_S = 3600.0
LEAST_S = 1.0
"""Least remaining time of a job in seconds, so that its weight stays finite."""


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
