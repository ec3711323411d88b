r"""Levels where two jobs may share GPUs: one program of `allocation.packing` after the other.

Level z is reached if all can have the whole of their need r_c(z) there, t = 1. With duals l, s, y of the program's rows
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
from scipy.optimize import brentq

from allocation.arrays import Bools, Floats
from allocation.classes import Kinds, alike
from allocation.levels import Levels
from allocation.one_level import Need
from allocation.packing import Answer, Columns, Crowd, greatest_part, missing_columns
from allocation.pairs import Pairs
from allocation.problem import Problem
from allocation.solve import SolverFailed

PACKED = "Two jobs may share GPUs where they get more done so than by turns."

GAP = 1e-8
"""Of a level, relative to it."""
HAIR = 1e-8
"""By so much, relatively, those who are stopped may fall back at each level, lest rounding leave no room at all."""
SLIGHTLY = 1e-6
NOTHING = 1e-9
"""What a program says that somebody's rate costs, where it costs nothing."""
MOST_LEVELS = 10
"""Where many jobs all differ there may be as many levels as jobs, nearly all of them of one job far above the rest."""
MOST_SOLVES = 100
"""For one level."""


def pack_evenly(problem: Problem, scale: Floats) -> Levels:
    """Raise the level where it is the rate times a number of each job's own, scale (m,)."""
    kinds = alike(np.column_stack([problem.rate, scale, problem.workload]))
    per_level = 1 / scale[kinds.first]
    ceiling = problem.rate[kinds.first].max(axis=1) / per_level
    return pack_levels(problem, kinds, lambda z: z * per_level, ceiling=ceiling)


def pack_levels(problem: Problem, kinds: Kinds, need: Need, *, ceiling: Floats) -> Levels:
    """Raise everybody's level as far as it goes, the lowest first (lexicographic max-min, for the ten lowest levels).

    Who would rise beyond the tenth has that at least, and whatever more the last program happens to give.

    Parameters
    ----------
    kinds : classes of rows that are alike in rate, workload, and whatever else their need depends on.
    need : level → (C,) rates; what a job cannot reach even alone is not asked of it.
    ceiling : (C,) the level at which a job needs all that it can do.

    Raises
    ------
    SolverFailed
        The solver stopped early, or pairs went on to enter.
    """
    began = perf_counter()
    crowd = Crowd.of(problem, kinds)
    tops = _tops(crowd, need, ceiling)
    first, spent = tops[0], tops[-1].answer.spent
    bound = min(first.level, float(ceiling.min()))
    prices = [top.prices() for top in tops]
    return Levels(
        shares=spent.alone[kinds.of_row] / kinds.count[kinds.of_row, None],
        level=bound * min(1.0, float((spent.rates / first.needed).min())),
        bound=bound,
        prices=next((gain for gain in prices if gain.any()), prices[0]),
        seconds=perf_counter() - began,
        pairs=Pairs.of_classes(*spent.together, kinds),
    )


@dataclass(frozen=True, eq=False)
class _Top:
    """The highest level of those who rise: what all need there (C,), and how it is had."""

    level: float
    rising: Bools
    need: Need
    answer: Answer

    @cached_property
    def needed(self) -> Floats:
        return self.need(self.level)

    @cached_property
    def stopped(self) -> Bools:
        """Who of the classes (C,) can rise no further: more of his rate would cost others, or he is at his highest."""
        crowd = self.answer.spent.columns.crowd
        cost = self.answer.of_rate * crowd.count * self.needed
        stopped = self.rising & ((cost > NOTHING) | (self.needed >= crowd.most * (1 - HAIR)))
        return stopped if stopped.any() else self.rising

    def prices(self) -> Floats:
        """By how much the level would rise for one more GPU of each type (n,)."""
        crowd = self.answer.spent.columns.crowd
        below = self.level * (1 - SLIGHTLY)
        growth = float((self.answer.of_rate * crowd.count) @ (self.needed - self.need(below)))
        gain = (self.level - below) / growth if growth > 0 else 0.0
        return self.answer.of_type / np.maximum(crowd.capacity, 1) * gain


def _tops(crowd: Crowd, need: Need, ceiling: Floats) -> list[_Top]:
    """One level after the other, each of those whom the one before did not stop."""
    tops, rising, stays = list[_Top](), np.ones(len(ceiling), dtype=np.bool_), np.zeros(len(ceiling))
    level, columns = float(np.median(ceiling)), Columns.alone(crowd)
    while rising.any() and len(tops) < MOST_LEVELS:
        needed = _within(crowd.most, need, rising, stays)
        top = _highest(columns, needed, rising, level, float(ceiling[rising].max()))
        rising = rising & ~top.stopped
        stays = np.where(rising, 0, np.minimum(top.needed, top.answer.spent.rates) * (1 - HAIR))
        level, columns = top.level, top.answer.likely
        tops.append(top)
    return tops


def _within(most: Floats, need: Need, rising: Bools, stays: Floats) -> Need:
    """What is asked of a class: no more than it can, and what it has once it is stopped."""
    return lambda z: np.where(rising, np.minimum(need(z), most), stays)


def _highest(columns: Columns, need: Need, rising: Bools, level: float, ceiling: float) -> _Top:
    """The highest level of those who rise, up to the ceiling, from any level to begin with."""
    for _ in range(MOST_SOLVES):
        needed = need(level)
        answer = greatest_part(columns, needed, rising)
        gap, keys = missing_columns(answer)
        more = columns.with_more(keys)
        complete = gap <= GAP * answer.part or len(more.keys) == len(columns.keys)
        if complete and (abs(answer.part - 1) <= GAP or (answer.part >= 1 and level == ceiling)):
            return _Top(level, rising, need, answer)
        level = _next_level(answer, need, rising, ceiling)
        if complete and _is_had(answer, needed, need(level), rising):
            return _Top(level, rising, need, answer)
        columns = columns if complete else more
    raise SolverFailed(f"packed levels: pairs went on to enter after {MOST_SOLVES} programs")


def _is_had(answer: Answer, needed: Floats, wanted: Floats, rising: Bools) -> bool:
    """Whether what is wanted at another level is that part of the need that can be had."""
    return bool(np.allclose(answer.part * needed[rising], wanted[rising], rtol=GAP, atol=0))


def _next_level(answer: Answer, need: Need, rising: Bools, ceiling: float) -> float:
    """The level beyond which the duals prove, for these columns, that nobody gets."""
    per_rate = np.where(rising, answer.of_rate * answer.spent.columns.crowd.count, 0)

    def spare(z: float) -> float:
        return float(per_rate @ need(z)) - answer.part

    return ceiling if spare(ceiling) <= 0 else float(brentq(spare, 0, ceiling, xtol=1e-300, rtol=1e-14, maxiter=300))
