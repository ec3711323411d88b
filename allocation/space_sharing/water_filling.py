r"""Water filling where two jobs may share GPUs: each level by `allocation.space_sharing.column_generation`.

Level z is reached if all classes get their required rates r_c(z), t = 1. With duals l, s, y of the program's rows
no level z' is in reach for which

.. math::
    \textstyle\sum_c l_c N_c\, r_c(z') > \sum_c s_c N_c + \sum_j y_j c_j

and that gives the next z. Classes with l_c > 0 can rise no further at that level; the others go on, up to the tenth
level.
"""

from dataclasses import dataclass
from functools import cached_property
from time import perf_counter

import numpy as np
import scipy

from allocation.problem import Problem, sharing_of
from allocation.solvers.linear_program import SolverFailed
from allocation.solvers.max_min_level import RequiredRate
from allocation.solvers.presolve import JobClasses, group_identical
from allocation.solvers.water_filling import MaxMinShares
from allocation.space_sharing.column_generation import (
    Columns,
    JobClassData,
    MasterSolution,
    pairs_of_classes,
    price_columns,
    solve_restricted_master,
)
from allocation.types import Bools, Floats

PACKED = "Two jobs may share GPUs where they get more done so than by turns."

GAP = 1e-8
"""Relative optimality gap of a level."""
RATE_SLACK = 1e-8
"""Relative slack in the rate of fixed classes at each level, lest rounding errors make the next program infeasible."""
SLIGHTLY = 1e-6
NOTHING = 1e-9
"""Dual of a rate below which the rate counts as free."""
MOST_LEVELS = 10
"""Levels solved: with many different jobs there may be as many levels as jobs, most of them of one job high up."""
MOST_SOLVES = 100
"""Programs solved for one level."""


def pack_evenly(problem: Problem, scale: Floats) -> MaxMinShares:
    """Water filling where the level is the rate times a scale (m,) per job."""
    classes = group_identical(np.column_stack([problem.rate, scale, sharing_of(problem).workload]))
    per_level = 1 / scale[classes.first]
    ceiling = problem.rate[classes.first].max(axis=1) / per_level
    return pack_levels(problem, classes, lambda z: z * per_level, ceiling=ceiling)


def pack_levels(problem: Problem, classes: JobClasses, need: RequiredRate, *, ceiling: Floats) -> MaxMinShares:
    """Water filling: raise the levels of all jobs as far as possible (lexicographic max-min for the ten lowest levels).

    A job that would rise beyond the tenth level gets that at least, and whatever more the last program happens to give.

    Parameters
    ----------
    classes : classes of rows with the same rate, workload, and whatever else their required rate depends on.
    need : level → required rates (C,); a job is required no more than it reaches alone.
    ceiling : (C,) the level at which a job requires its highest rate.

    Raises
    ------
    SolverFailed
        The solver stopped early, or column generation did not end.
    """
    began = perf_counter()
    data = JobClassData.of(problem, classes)
    levels = _levels(data, need, ceiling)
    first, allocated = levels[0], levels[-1].master.allocated
    bound = min(first.level, float(ceiling.min()))
    prices = [highest.prices() for highest in levels]
    return MaxMinShares(
        shares=allocated.alone[classes.of_row] / classes.count[classes.of_row, None],
        level=bound * min(1.0, float((allocated.rates / first.needed).min())),
        bound=bound,
        prices=next((gain for gain in prices if gain.any()), prices[0]),
        seconds=perf_counter() - began,
        pairs=pairs_of_classes(*allocated.together, classes),
    )


@dataclass(frozen=True, eq=False)
class _Level:
    """Highest level of the rising classes, and the solution of its master problem."""

    level: float
    rising: Bools
    need: RequiredRate
    master: MasterSolution

    @cached_property
    def needed(self) -> Floats:
        return self.need(self.level)

    @cached_property
    def stopped(self) -> Bools:
        """Classes (C,) that can rise no further: their rate has a positive dual, or is their highest."""
        data = self.master.allocated.columns.data
        cost = self.master.of_rate * data.count * self.needed
        stopped = self.rising & ((cost > NOTHING) | (self.needed >= data.most * (1 - RATE_SLACK)))
        return stopped if stopped.any() else self.rising

    def prices(self) -> Floats:
        """Prices (n,): gain of the level per GPU of each type."""
        data = self.master.allocated.columns.data
        below = self.level * (1 - SLIGHTLY)
        growth = float((self.master.of_rate * data.count) @ (self.needed - self.need(below)))
        gain = (self.level - below) / growth if growth > 0 else 0.0
        return self.master.of_type / np.maximum(data.capacity, 1) * gain


def _levels(data: JobClassData, need: RequiredRate, ceiling: Floats) -> list[_Level]:
    """Levels in ascending order, each of the classes that the one before did not stop."""
    levels, rising, stays = list[_Level](), np.ones(len(ceiling), dtype=np.bool_), np.zeros(len(ceiling))
    level, columns = float(np.median(ceiling)), Columns.alone(data)
    while rising.any() and len(levels) < MOST_LEVELS:
        needed = _within(data.most, need, rising, stays)
        highest = _highest(columns, needed, rising, level, float(ceiling[rising].max()))
        rising = rising & ~highest.stopped
        stays = np.where(rising, 0, np.minimum(highest.needed, highest.master.allocated.rates) * (1 - RATE_SLACK))
        level, columns = highest.level, highest.master.likely
        levels.append(highest)
    return levels


def _within(most: Floats, need: RequiredRate, rising: Bools, stays: Floats) -> RequiredRate:
    """Required rate of a class: no more than its highest, and what it has once it is stopped."""
    return lambda z: np.where(rising, np.minimum(need(z), most), stays)


def _highest(columns: Columns, need: RequiredRate, rising: Bools, level: float, ceiling: float) -> _Level:
    """Highest level of the rising classes, up to the ceiling, by column generation from any level to begin with."""
    for _ in range(MOST_SOLVES):
        needed = need(level)
        master = solve_restricted_master(columns, needed, rising)
        gap, keys = price_columns(master)
        more = columns.with_more(keys)
        complete = gap <= GAP * master.part or len(more.keys) == len(columns.keys)
        if complete and (abs(master.part - 1) <= GAP or (master.part >= 1 and level == ceiling)):
            return _Level(level, rising, need, master)
        level = _next_level(master, need, rising, ceiling)
        if complete and _is_had(master, needed, need(level), rising):
            return _Level(level, rising, need, master)
        columns = columns if complete else more
    raise SolverFailed(f"space sharing: column generation did not end after {MOST_SOLVES} programs")


def _is_had(master: MasterSolution, needed: Floats, wanted: Floats, rising: Bools) -> bool:
    """Whether the rates required at another level are the part of the required rates that can be reached."""
    return bool(np.allclose(master.part * needed[rising], wanted[rising], rtol=GAP, atol=0))


def _next_level(master: MasterSolution, need: RequiredRate, rising: Bools, ceiling: float) -> float:
    """Bound on the level that the duals prove for these columns."""
    per_rate = np.where(rising, master.of_rate * master.allocated.columns.data.count, 0)

    def spare(z: float) -> float:
        return float(per_rate @ need(z)) - master.part

    if spare(ceiling) <= 0:
        return ceiling
    return float(scipy.optimize.brentq(spare, 0, ceiling, xtol=1e-300, rtol=1e-14, maxiter=300))
