"""Time budget of a policy: the time limit of the round, counted from when the policy is asked."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Self

from allocation.problem import Problem

now_s: Callable[[], float] = monotonic
"""Seconds on a clock that never goes back. Looked up at each call, so that a test can put its own in this place."""


@dataclass(frozen=True)
class TimeBudget:
    """A moment on that clock. A solver checks it between steps, and stops with the solution that is certified then."""

    at_s: float

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """The time limit of the round, counted from now."""
        return cls.after(problem.solve_limit_s)

    @classmethod
    def after(cls, seconds: float) -> Self:
        """So many seconds from now; inf: never."""
        return cls(now_s() + seconds)

    def passed(self) -> bool:
        return self.left_s() <= 0

    def left_s(self) -> float:
        """Seconds that are left, 0 at least; inf: as many as it takes."""
        return max(self.at_s - now_s(), 0.0)

    def at_most(self, seconds: float) -> "TimeBudget":
        """This moment, or that in so many seconds if it is sooner."""
        return TimeBudget(min(self.at_s, now_s() + seconds))


UNLIMITED = TimeBudget(inf)
