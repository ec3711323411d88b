"""Water filling (lexicographic max-min fairness): level by level, each the highest of the jobs that can still rise.

A job is fixed when it is bottlenecked and its optimal mix is unique at the current dual prices (complementary
slackness): it uses the same GPUs at all later levels. So each next level is solved for fewer jobs, on the capacity that
the fixed ones leave. One level is `allocation.solvers.max_min_level`, its pricing `allocation.solvers.pricing_oracle`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from allocation.decision import Decision, Pairs, Status
from allocation.solvers.max_min_level import SLIGHTLY, MaxMinLevel, RequiredRate, highest_level
from allocation.solvers.presolve import JobClasses, group_identical
from allocation.solvers.pricing_oracle import SAME, PricingOracle
from allocation.time_budget import UNLIMITED, TimeBudget
from allocation.types import Bools, Floats, Ints

RequiredWithin = Callable[[Floats], RequiredRate]
"""Highest reachable rate (m,) of each job → the required rate, within that, by level.

Where less can be reached, only the jobs that would require more than that require less.
"""

CAPACITY_SLACK = 1e-9
"""Part of a type that a level may use beyond the one before, lest rounding errors stop jobs that do not use it."""


@dataclass(frozen=True, eq=False)
class MaxMinShares:
    """Shares (m, K), and pairs if any; the lowest level, its bound, and prices (n,), its gain per GPU."""

    shares: Floats
    level: float
    bound: float
    prices: Floats
    seconds: float
    status: Status = Status.OPTIMAL
    pairs: Pairs | None = None

    @property
    def decision(self) -> Decision:
        """Decision of a policy whose objective is the level."""
        return Decision.of_shares(
            self.shares,
            prices=self.prices,
            objective=self.level,
            bound=self.bound,
            status=self.status,
            solve_seconds=self.seconds,
            pairs=self.pairs,
        )

    @property
    def inverse_decision(self) -> Decision:
        """Decision of a policy whose objective is 1 over the level, to be minimised."""
        prices = self.prices / self.level**2
        return replace(self, level=1 / self.level, bound=1 / self.bound, prices=prices).decision


def fill_evenly(rate: Floats, usage: Ints, capacity: Ints, *, budget: TimeBudget = UNLIMITED) -> MaxMinShares:
    """Water filling where the level is the rate (m, K) itself; identical rows are solved as one."""
    classes = group_identical(rate)
    one = rate[classes.first]
    due, ceiling = each_alone(lambda z: z), one.max(axis=1)
    return fill_levels(one, usage, capacity, due, ceiling=ceiling, classes=classes, budget=budget)


def each_alone(need: Callable[[float], Floats | float]) -> RequiredWithin:
    """Required rates of independent jobs: each requires no more than it can reach."""
    return lambda reach: lambda z: np.minimum(need(z), reach)


def fill_levels(
    rate: Floats,
    usage: Ints,
    capacity: Ints,
    due: RequiredWithin,
    *,
    ceiling: Floats,
    classes: JobClasses,
    budget: TimeBudget = UNLIMITED,
) -> MaxMinShares:
    """Water filling: raise the levels of all jobs as far as possible, the lowest first (lexicographic max-min).

    Parameters
    ----------
    rate, usage, capacity : (C, K) of each kind's jobs, (n, K) GPUs, (n,) GPUs.
    due : reachable rates, at first those of each job alone → level → required rates (C,).
    ceiling : (C,) the level at which a job requires its highest rate.
    classes : C classes of m rows; each row has the shares of its class.
    budget : what is reached when it is spent counts, with the status `limit`.

    Raises
    ------
    SolverFailed
        The cutting planes did not close the gap of the lowest level.
    """
    began = perf_counter()
    there = capacity > 0
    oracle = PricingOracle.of(rate, usage[there] / capacity[there, None], classes.count)
    levels, is_done = _levels(oracle, due, ceiling, budget)
    shares = np.zeros_like(rate)
    for rows, highest in levels:
        shares[rows] = highest.shares  # later levels overwrite those of the rows that are not fixed yet
    overuse = max(float((usage[there] @ (classes.count @ shares) / capacity[there]).max(initial=0)), 1.0)
    lowest = levels[0][1]
    bound, prices = min(lowest.level, float(ceiling.min())), np.zeros(len(capacity))
    prices[there] = lowest.gains / capacity[there]
    return MaxMinShares(
        shares=(shares / overuse)[classes.of_row],
        level=bound / overuse,
        bound=bound,
        prices=prices,
        seconds=perf_counter() - began,
        status=Status.OPTIMAL if is_done else Status.LIMIT,
    )


def _levels(
    oracle: PricingOracle, due: RequiredWithin, ceiling: Floats, budget: TimeBudget
) -> tuple[list[tuple[Ints, MaxMinLevel]], bool]:
    """Levels in ascending order, each with the rows that were not fixed before; and whether all rows are fixed."""
    levels, low = list[tuple[Ints, MaxMinLevel]](), 0.0
    rows, reach, left = np.arange(len(ceiling)), oracle.most.copy(), np.ones(len(oracle.use))
    rising = np.ones(len(rows), dtype=np.bool_)
    while rising.any() and len(levels) <= len(left):
        available = oracle.left_to(rows, left)
        reach[rows] = np.minimum(reach[rows], available.most)  # a type that is used up may have had no price
        need = _required_of(rows, due(reach))
        highest = highest_level(available, need, low, float(ceiling[rows[rising]].max()), budget=budget)
        if levels and not highest.is_reached:
            return levels, False
        levels.append((rows, highest))
        if not highest.is_reached:
            return levels, False
        rising = highest.reach > highest.rates * (1 + SAME)
        reach[rows] = np.where(rising, np.minimum(reach[rows], highest.reach), highest.rates)
        fixed, left_of_it = _fixed(highest, rising)
        low, left, rows, rising = highest.level, left * left_of_it, rows[~fixed], rising[~fixed]
    return levels, True


def _required_of(rows: Ints, need: RequiredRate) -> RequiredRate:
    return lambda z: need(z)[rows]


def _fixed(highest: MaxMinLevel, rising: Bools) -> tuple[Bools, Floats]:
    """Rows that are fixed at this level, and the part (n,) of each type that is left to the others.

    Fixed are bottlenecked rows with a unique optimal mix, and those that need a type of which next to nothing is left.
    """
    fixed = ~rising & highest.cheapest.is_only_one
    gone = highest.left_by(fixed) < SLIGHTLY
    without = highest.cheapest.oracle.left_to(np.arange(len(rising)), np.where(gone, 0.0, 1.0)).most
    fixed |= without < highest.rates * (1 - SAME)
    return fixed, np.where(gone, 0.0, highest.left_by(fixed) + CAPACITY_SLACK)
