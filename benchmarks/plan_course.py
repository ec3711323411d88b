"""Course of the jobs of a round by the plan: when each starts and ends, prices and load of the hours to come.

The program over time of `allocation.plan.program` with the mean completion time as its objective, as in `motley`: a
configuration that is not held begins with a restart. A plan knows nothing of jobs that are still to come.
"""

from dataclasses import dataclass

import numpy as np

from allocation.plan.costs_to_go import GAP, all_work_s, intervals_to
from allocation.plan.program import PlanProgram
from allocation.plan.solution import solve_plan
from allocation.problem import Problem
from allocation.time_budget import UNLIMITED, TimeBudget
from allocation.types import Floats


@dataclass(frozen=True, eq=False)
class PlannedCourse:
    """What a plan says of m jobs, n GPU types and T intervals.

    start_s, end_s (m,) float, seconds from now; inf: not before the end of the last interval. prices (n, T) float,
    hours that others wait per GPU-hour. load (n, T) float, GPUs used on average. ends_s (T,) float, of the intervals.
    """

    start_s: Floats
    end_s: Floats
    prices: Floats
    load: Floats
    ends_s: Floats


def plan_course(problem: Problem, *, steps: Floats, budget: TimeBudget = UNLIMITED) -> PlannedCourse:
    """Plan all jobs of a round; `steps` (m,) are left of each, > 0 and finite."""
    rate = rate_after_restart(problem, steps)
    ends_s = intervals_to(all_work_s(rate, problem.usage, problem.capacity, steps))
    program = PlanProgram.of(rate, problem.usage, problem.capacity, ends_s, steps=steps, weight=problem.job_weight)
    plan = solve_plan(program, gap=GAP, budget=budget)
    return PlannedCourse(plan.start_s, plan.end_s, plan.prices, plan.load, ends_s)


def rate_after_restart(problem: Problem, steps: Floats) -> Floats:
    """Rates (m, K) less the time of one restart, where the configuration is not held: T' = T S / (S + T R)."""
    held = problem.held[:, None] == np.arange(problem.rate.shape[1])
    restart_s = np.where(held, 0, problem.restart_s[:, None])
    rate: Floats = problem.rate * steps[:, None] / (steps[:, None] + problem.rate * restart_s)
    return rate
