"""The formulas as they stand, one row per job, given to HiGHS whole: what policies are measured against."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.sparse import block_array, csr_array, vstack

from allocation.arrays import Floats
from allocation.policies.makespan import steps_left
from allocation.policies.min_cost import dollars_per_hour
from allocation.problem import Problem
from allocation.solve import Solution, maximize

LIMIT_S = 60.0
Plain = Callable[[Problem], float]
"""Gives the objective."""


def _time_and_capacity(problem: Problem) -> tuple[csr_array, Floats]:
    """Rows over the configurations that jobs can use."""
    i, k = (problem.rate > 0).nonzero()
    m = len(problem.weight)
    time = csr_array((np.ones(i.size), (i, np.arange(i.size))), shape=(m, i.size))
    rows = vstack([time, csr_array(problem.usage[:, k].astype(float))])
    return rows, np.concatenate([np.ones(m), problem.capacity])


def _worst_off(problem: Problem, a: Floats) -> Solution:
    i, k = (problem.rate > 0).nonzero()
    m = len(problem.weight)
    rows, limits = _time_and_capacity(problem)
    reach = csr_array((-a[i, k], (i, np.arange(i.size))), shape=(m, i.size))
    blocks: Any = [[reach, csr_array(np.ones((m, 1)))], [rows, None]]
    fair: Any = block_array(blocks)
    objective = np.append(np.zeros(i.size), 1)
    return maximize(objective, fair, np.concatenate([np.zeros(m), limits]), time_limit_s=LIMIT_S)


def _total(problem: Problem, b: Floats) -> float:
    rows, limits = _time_and_capacity(problem)
    i, k = (problem.rate > 0).nonzero()
    return maximize(b[i, k], rows, limits, time_limit_s=LIMIT_S).value


def max_min_fairness(problem: Problem) -> float:
    a = problem.rate * (problem.base_gpus / (problem.weight * problem.base_rate))[:, None]
    return _worst_off(problem, a).value


def makespan(problem: Problem) -> float:
    return 1 / _worst_off(problem, problem.rate / steps_left(problem)[:, None]).value


def finish_time_fairness(problem: Problem) -> float:
    """By bisection over rho, each step a program."""
    p, c, m = problem.base_rate, problem.capacity, len(problem.weight)
    alone_s = problem.isolated_s + problem.remaining_steps / (p * np.minimum(1, c.sum() / (m * problem.base_gpus)))
    least = ((problem.age_s + problem.remaining_steps / problem.rate.max(axis=1)) / alone_s).max()

    def spare(rho: float) -> float:
        needed = problem.remaining_steps / (rho * alone_s - problem.age_s)
        return _worst_off(problem, problem.rate / needed[:, None]).value - 1

    return float(least) if spare(least * (1 + 1e-9)) >= 0 else float(brentq(spare, least * (1 + 1e-9), 1e3 * least))


def sia(problem: Problem, *, gap: float = 1e-3) -> float:
    """The integer program of the policy's own worth, whole."""
    from allocation.policies.sia import sia as policy  # it is only asked what it counts

    decision = policy(problem)
    rows, limits = _time_and_capacity(problem)
    i, k = (problem.rate > 0).nonzero()
    assert decision.worth is not None
    worth, whole = decision.worth[i, k], np.ones(i.size, dtype=np.int64)
    found = maximize(worth, rows, limits, most=1, integrality=whole, time_limit_s=LIMIT_S, gap=gap)
    return 1.1 * float(problem.weight.sum()) - found.value


PLAIN: dict[str, Plain] = {
    "max_min_fairness": max_min_fairness,
    "finish_time_fairness": finish_time_fairness,
    "makespan": makespan,
    "max_sum_throughput": lambda problem: _total(problem, problem.rate * problem.weight[:, None]),
    "min_cost": lambda p: _total(p, p.rate * p.weight[:, None] / dollars_per_hour(p)),
    "sia": partial(sia, gap=1e-3),
}
