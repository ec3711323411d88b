"""Cost of a restart: what a job loses when it is moved to another configuration. Every policy charges it by these.

A restart takes `Problem.restart_s` (m,) seconds, in which the job holds its GPUs and does no step.
"""

from numpy import arange, divide, full_like, inf, maximum, minimum, where

from allocation.problem import LEASE, Problem
from allocation.types import Bools, Floats, Ints


def without_restart(problem: Problem) -> Bools:
    """Configurations (m, K) that cost no restart: the one held, and all of a job that holds none."""
    held = problem.held[:, None]
    stays: Bools = (arange(problem.rate.shape[1]) == held) | (held < 0)
    return stays


def restart_seconds(problem: Problem) -> Floats:
    """Seconds (m, K) that a move to each configuration takes; 0 where none is needed."""
    seconds: Floats = where(without_restart(problem), 0, problem.restart_s[:, None])
    return seconds


def sia_restart_factor(problem: Problem) -> Floats:
    r"""Sia's factor (m, K) of the goodput after a move, :math:`r_i = (t_i - N_i R_i) / (t_i + R_i)`; 1 without a move.

    t is the age, N the restarts so far and R the time of one. A job younger than R moves for nothing.
    """
    t, N, R = problem.age_s, problem.restarts, problem.restart_s
    r = where(t < R, 1, maximum(t - N * R, 0) / maximum(t + R, 1e-9))
    factor: Floats = where(without_restart(problem), 1, r[:, None])
    return factor


def part_lost_to_restart(problem: Problem, steps: Floats, held: Bools, *, repaid: float, horizon_s: float) -> Floats:
    """Part (m, K) of the remaining time, up to the horizon, that a restart takes with so many steps (m,) left.

    A job that runs must repay its restart `repaid` times; `held` (m, K) are configurations that cost none.
    """
    restart_s = problem.restart_s * where(problem.held >= 0, repaid, 1)
    R = where(held, 0, restart_s[:, None])
    alone_s = divide(steps[:, None], problem.rate, out=full_like(problem.rate, inf), where=problem.rate > 0)
    part: Floats = minimum(R / minimum(horizon_s, R + alone_s), 1)
    return part


def rate_after_restart(problem: Problem, steps: Floats, held: Bools) -> Floats:
    """Effective rates (m, K), steps/s over S = steps (m,), where a restart comes first: T' = T S / (S + T R)."""
    R, S, T = where(held, 0, problem.restart_s[:, None]), steps[:, None], problem.rate
    rate: Floats = T * S / (S + T * R)
    return rate


def repays_two_restarts(problem: Problem, rows: Ints) -> Bools:
    """Configurations (r, K) in which these rows get further within a lease, or to their end, than where they are."""
    there, here = problem.rate[rows], problem.rate[rows, problem.held[rows]][:, None]
    left_s = problem.remaining_steps[rows, None] / here
    lease_s = minimum(LEASE * problem.restart_s[rows, None], left_s)
    better: Bools = there * (lease_s - 2 * problem.restart_s[rows, None]) > here * lease_s
    return better
