r"""Costs to go of many jobs from a plan of few: prices by a sample of the jobs, and each job's exact response to them.

Up to `MOST_PLANNED` jobs all of them are planned. Of more, so many stand for the others in the program over time, one
of each group of neighbours by length and size, and every job then answers the prices alone
(`allocation.plan.response`): its cost to go is exact at these prices, whatever they are.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from allocation.plan.program import HOUR_S, LATE, PlanProgram, doubling_intervals
from allocation.plan.reduction import job_blocks
from allocation.plan.response import respond
from allocation.plan.solution import solve_plan
from allocation.time_budget import UNLIMITED, TimeBudget
from allocation.types import Floats, Ints

MOST_PLANNED = 200
"""Jobs that are planned in a round."""
FIRST_S = 60.0
"""Length of the first interval."""
MARGIN = 2.0
"""The last interval ends at this multiple of the time that all work takes, or later."""
LONGEST_S = 366 * 24 * HOUR_S
"""Latest end of the last interval."""
GAP = 0.01
"""Relative optimality gap of the plan: its prices need not be better known than the rates."""
PART = 4096
"""Jobs that answer prices at a time."""


@dataclass(frozen=True, eq=False)
class CostsToGo:
    """Cost to go of m jobs.

    alpha (m,) float, cost per step; prices (n, T) float, cost per GPU-hour of each type and interval; ends_s (T,)
    float, of the intervals; load (n, T) float, GPUs that all jobs use on average over each; bound: a lower bound of the
    cost of all plans of these jobs, whatever stands for them; planned: rows of the program that was solved.
    """

    alpha: Floats
    prices: Floats
    ends_s: Floats
    load: Floats
    bound: float
    planned: int


def find_costs_to_go(
    rate: Floats,
    usage: Ints,
    capacity: Ints,
    *,
    steps: Floats,
    weight: Floats,
    lateness: float = 0.0,
    ends_s: Floats | None = None,
    most_planned: int = MOST_PLANNED,
    budget: TimeBudget = UNLIMITED,
) -> CostsToGo:
    r"""Find what a step of each job is worth now: by how much it lowers the cost of the plan.

    The cost is the weighted sum of the jobs' mean busy dates. With a lateness theta, later hours count more: at the end
    E of all work (`all_work_s`) 1 + theta times as much as now, and 1 on average until then. The time tau counts as
    :math:`\tau (1 + \theta \tau / 2 E) / (1 + \theta / 2)`.

    Parameters
    ----------
    rate : (m, K) float, steps/s; each row has one above 0 that fits.
    usage, capacity : (n, K) and (n,) int, GPUs.
    steps, weight : (m,) float, > 0, steps that are left and what the job counts.
    lateness : theta, at least 0.
    ends_s : (T,) float, of the intervals; by default from a minute, doubling, until all work can be done.
    most_planned : jobs of which all are planned.
    budget : when it is spent, the prices so far count.
    """
    all_s = all_work_s(rate, usage, capacity, steps)
    ends_s = intervals_to(all_s) if ends_s is None else ends_s
    *cost_h, late_h = _counted_h(ends_s, lateness, max(all_s, FIRST_S)).tolist()
    program = PlanProgram.of(rate, usage, capacity, ends_s, steps=steps, weight=weight, cost_h=cost_h, late_h=late_h)
    order = _by_length(rate, usage, steps, weight)
    sample, count = _sample(order, most_planned)
    plan = solve_plan(program.of_rows(sample, count), gap=GAP, budget=budget)
    alpha, bound = np.empty(len(order)), plan.bound
    if len(sample) == len(order):
        alpha[sample] = plan.cost_to_go
    else:
        near = np.repeat(plan.cost_to_go * program.steps[sample], count)
        answers = list(_answers(program, order, plan.prices.T / HOUR_S, near))
        alpha[order] = np.concatenate([of_part for of_part, _ in answers])
        bound = sum(value for _, value in answers) - float((program.room.T * plan.prices).sum()) / HOUR_S
    return CostsToGo(alpha, plan.prices, ends_s, plan.load, bound, len(sample))


def all_work_s(rate: Floats, usage: Ints, capacity: Ints, steps: Floats) -> float:
    """Seconds that all work takes on divisible GPUs, and then the longest job alone."""
    with np.errstate(divide="ignore"):
        alone_s = np.where(rate > 0, steps[:, None] / rate, np.inf)
    gpu_s = (alone_s * usage.sum(axis=0)).min(axis=1).sum()
    all_s = gpu_s / max(int(capacity.sum()), 1) + alone_s.min(axis=1).max(initial=0)
    return min(float(all_s), LONGEST_S / MARGIN)


def intervals_to(all_s: float) -> Floats:
    """Doubling intervals up to the time by which all work is done, with a margin."""
    return doubling_intervals(FIRST_S, MARGIN * all_s)


def _counted_h(ends_s: Floats, lateness: float, all_s: float) -> Floats:
    """Hours (T + 1,) counted until the middle of each interval, and last until after all of them."""
    middle_s = (np.append(0, ends_s[:-1]) + ends_s) / 2
    parts = np.append(middle_s, LATE * ends_s[-1]) / all_s
    hours: Floats = parts * (1 + lateness * parts / 2) / (1 + lateness / 2) * all_s / HOUR_S
    return hours


def _by_length(rate: Floats, usage: Ints, steps: Floats, weight: Floats) -> Ints:
    """Rows by their fewest GPUs, then by least time over weight: the same, in whatever order the jobs are."""
    fewest = np.where(rate > 0, usage.sum(axis=0), np.inf).min(axis=1)
    least_s = steps / rate.max(axis=1)
    order: Ints = np.lexsort([*rate.T, steps, weight, least_s / weight, fewest])
    return order


def _sample(order: Ints, most: int) -> tuple[Ints, Ints]:
    """The middle row of each of `most` groups of neighbours, and the number of rows of each group."""
    edges = np.linspace(0, len(order), min(most, len(order)) + 1).round().astype(np.int64)
    return order[(edges[:-1] + edges[1:] - 1) // 2], np.diff(edges)


def _answers(program: PlanProgram, order: Ints, prices: Floats, near: Floats) -> Iterator[tuple[Floats, float]]:
    """Costs to go per step of rows in this order, part by part, and their sum in the bound.

    prices (T, n) are per GPU-second; near (m,) are the costs of neighbours, with which the search begins.
    """
    for first in range(0, len(order), PART):
        rows = order[first : first + PART]
        some = program.of_rows(rows, np.ones(len(rows), dtype=np.int64))
        alpha, value = some.late_h.copy(), some.late_h.copy()  # a row without a configuration is late
        for block in job_blocks(some):
            start = near[first : first + PART][block.rows]
            alpha[block.rows], value[block.rows] = respond(block, prices, some.pieces, start)
        yield alpha / some.steps, float(value.sum())
