"""Solution of the program over time: prices, costs to go, the planned course, and a certified gap."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from allocation.plan.interior_point import InteriorPoint, solve
from allocation.plan.program import HOUR_S, PlanProgram
from allocation.plan.reduction import LEAST_PART, JobBlock, job_blocks
from allocation.plan.response import respond, respond_to_no_prices
from allocation.time_budget import UNLIMITED, TimeBudget
from allocation.types import Floats

PLANNED = 0.99
"""Part of a job's work that is planned before the end of the last interval, for the job to have an expected end."""
A_START = 0.01
"""Part of a job's running time with which it counts as started."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Solution of a program over time.

    Parameters
    ----------
    prices : (n, T) float, hours of cost per GPU-hour of each type and interval, pi.
    cost_to_go : (m,) float, hours of cost per step of each job, alpha.
    seconds : (m, K, T) float, how long each job runs in each configuration in each interval.
    late : (m,) float, 0 to 1, part of each job's work that is left for the time after the last interval.
    start_s, end_s : (m,) float, expected start and end of each job; inf: not before the end of the last interval.
    load : (n, T) float, GPUs that the plan uses, on average over the interval.
    value, bound : hours of cost of this solution, and a lower bound of that of all solutions, from the prices.
    solve_seconds, iterations : of the solver.
    """

    prices: Floats
    cost_to_go: Floats
    seconds: Floats
    late: Floats
    start_s: Floats
    end_s: Floats
    load: Floats
    value: float
    bound: float
    solve_seconds: float
    iterations: int

    @property
    def gap(self) -> float:
        """Relative optimality gap: by what part of it the value may be above the least."""
        return max(self.value - self.bound, 0.0) / self.value if self.value > 0 else 0.0


def solve_plan(program: PlanProgram, *, gap: float = 0.01, budget: TimeBudget = UNLIMITED) -> Plan:
    """Solve the program over time up to a relative gap, or until the time budget is spent, by an interior-point method.

    Where all jobs can run at their fastest at once, that is the solution, and no GPU has a price. The bound is that of
    the prices, at each job's exact response to them (`allocation.plan.response`).
    """
    began = perf_counter()
    blocks = list(job_blocks(program))
    point = _without_prices(program, blocks)
    plan = _plan_of(program, blocks, point, began) if point is not None else None
    if plan is None or plan.gap > gap:
        least = LEAST_PART * program.interval_s[:, None]
        point = solve(blocks, program.room, least, pieces=program.pieces, gap=gap, budget=budget)
        plan = _plan_of(program, blocks, point, began)
    return plan


def _plan_of(program: PlanProgram, blocks: Sequence[JobBlock], point: InteriorPoint, began: float) -> Plan:
    alpha, bound = _dual(program, blocks, point, program.room)
    seconds, late, value = _primal(program, blocks, point)
    start_s, end_s = _course(program, seconds, late)
    used = program.usage @ np.tensordot(program.count * program.probability, seconds, axes=1)
    return Plan(
        prices=point.prices.T * HOUR_S,
        cost_to_go=alpha / program.steps,
        seconds=seconds,
        late=late,
        start_s=start_s,
        end_s=end_s,
        load=used / program.interval_s,
        value=value,
        bound=min(bound, value),
        solve_seconds=perf_counter() - began,
        iterations=point.iterations,
    )


def _without_prices(program: PlanProgram, blocks: Sequence[JobBlock]) -> InteriorPoint | None:
    """All jobs in their fastest configurations, at prices of 0; None if they exceed the capacity of an interval."""
    room, pieces = program.room, program.pieces
    used = np.zeros(room.shape)
    answers = [respond_to_no_prices(block) for block in blocks]
    for block, (x, _) in zip(blocks, answers, strict=True):
        by_piece = np.matmul(x * block.count[:, None, None], block.usage).sum(axis=0)
        used += by_piece.reshape(len(room), pieces, -1).sum(axis=1)
    if (used > room).any():
        return None
    return InteriorPoint([x for x, _ in answers], np.zeros(room.shape), [alpha for _, alpha in answers], 0)


def _dual(program: PlanProgram, blocks: Sequence[JobBlock], point: InteriorPoint, room: Floats) -> tuple[Floats, float]:
    """Costs to go (m,) of the work of each row at the prices, and the bound."""
    alpha, parts = program.late_h.copy(), program.late_h.copy()  # a row without a configuration is late
    for block, start in zip(blocks, point.alpha, strict=True):
        alpha[block.rows], parts[block.rows] = respond(block, point.prices, program.pieces, start)
    return alpha, float(program.count @ parts) - float((room * point.prices).sum())


def _primal(program: PlanProgram, blocks: Sequence[JobBlock], point: InteriorPoint) -> tuple[Floats, Floats, float]:
    """Seconds (m, K, T), late work (m,) and value of the solution."""
    m, K, T = *program.rate.shape, len(program.ends_s)
    seconds, late, cost = np.zeros((m, K, T)), np.ones(m), program.late_h.copy()
    for block, x in zip(blocks, point.x, strict=True):
        done = np.matmul(x, block.speed[..., None])[..., 0]
        left = np.maximum(1 - done.sum(axis=1), 0)
        late[block.rows] = left
        cost[block.rows] = (done * block.cost).sum(axis=1) + left * block.late
        i, v = (block.name >= 0).nonzero()
        by_interval = x.reshape(len(x), T, program.pieces, -1).sum(axis=2)
        seconds[block.rows[i], block.name[i, v]] = by_interval[i, :, v]
    return seconds, late, float(program.count @ cost)


def _course(program: PlanProgram, seconds: Floats, late: Floats) -> tuple[Floats, Floats]:
    """Expected start and end (m,): a job that goes on runs last in its first interval, and first in its last."""
    T = len(program.ends_s)
    runs = seconds.sum(axis=1)
    total = runs.sum(axis=1)
    if not T or not len(runs):
        return np.full(len(runs), np.inf), np.full(len(runs), np.inf)
    sofar = runs.cumsum(axis=1) / np.maximum(total, 1e-300)[:, None]
    first, last = (sofar >= A_START).argmax(axis=1), (sofar >= 1 - A_START).argmax(axis=1)
    row, begins = np.arange(len(runs)), np.append(0, program.ends_s[:-1])
    possible = program.length_s.reshape(len(runs), T, -1).sum(axis=2)
    earliest = program.ends_s - np.minimum(possible, program.interval_s)
    goes_on = first < last
    start = np.where(goes_on, program.ends_s[first] - runs[row, first], earliest[row, first])
    end = np.where(goes_on, begins[last] + runs[row, last], start + runs[row, first])
    has_start, has_end = (total > 0) & (late < 1 - A_START), late <= 1 - PLANNED
    return np.where(has_start, start, np.inf), np.where(has_end & (total > 0), end, np.inf)
