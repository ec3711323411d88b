r"""Durations left of jobs that declare none: product limit over jobs that ended and jobs that still run.

The estimate of `estimation.durations` is log-normal, with a mean and a spread from the newest of a few jobs. What is
left of a job that has run for a time `a` depends on the tail, where that is wrong: limits of time and habits cut
durations off. With enough jobs that took longer than `a` their own distribution says it,

.. math::
    P(D > a + t \mid D > a) = \prod_{a < t_i \le a + t} (1 - d_i / n_i)

with d_i jobs that ended after t_i seconds among the n_i that took, or have run for, at least as long. Jobs that still
run are censored observations: without them the longest jobs, which have not ended, would be missing.

The jobs are those of the first pool in which `LEAST_LONGER` have taken longer: of the same name, user, team and number
of GPUs; of the same name in the team; of the user; of the same number of GPUs; of all.

References
----------
.. [1] Kaplan and Meier, Journal of the American Statistical Association 1958, "Nonparametric Estimation from Incomplete
   Observations".
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from estimation.durations import LEAST_SECONDS, JobTraits, without_numbers
from estimation.types import Bools, Floats

LEAST_LONGER = 10
"""Jobs that must have taken longer: of fewer, nine tenths of them say nothing of a tenth."""


class Observed(NamedTuple):
    """Durations (N,) of a pool in seconds, in their order; of the jobs that have not ended, so far."""

    seconds: Floats
    ended: Bools

    def longer_than(self, after_s: float) -> Self:
        """Those of jobs that took longer, or have run for longer."""
        first = np.searchsorted(self.seconds, after_s, side="right")
        return type(self)(self.seconds[first:], self.ended[first:])


@dataclass(frozen=True, eq=False)
class DurationLeft:
    """What is left of a job, as a distribution function between the times at which others ended."""

    seconds: Floats
    """Times left (n + 1,), from 0 on."""
    probability: Floats
    """Probability (n + 1,) that no more is left."""

    @classmethod
    def of(cls, observed: Observed, after_s: float) -> Self:
        """By the product limit over observations longer than this; the longest counts as ended."""
        n, ended = len(observed.seconds), observed.ended.copy()
        ended[-1] = True
        survival = np.cumprod(1 - ended / np.arange(n, 0, -1))
        left = observed.seconds[ended] - after_s
        return cls(np.append(0.0, left), np.append(0.0, 1 - survival[ended]))

    def quantile(self, p: float) -> float:
        """Seconds left, with probability p no more than these."""
        return float(np.interp(p, self.probability, self.seconds))


def _pools(traits: JobTraits) -> tuple[Hashable, ...]:
    """Pools that the job is in, the nearest first; names of other teams are not compared (`estimation.durations`)."""
    user, name, gpus, team = without_numbers(traits)
    return (
        ("user's name", team, user, name, gpus),
        ("user's name", team, user, name),
        ("team's name", team, name, gpus),
        ("team's name", team, name),
        ("user", team, user, gpus),
        ("gpus", gpus),
        ("all",),
    )


@dataclass(frozen=True, eq=False)
class DurationCurves:
    """Observed durations by pool."""

    _by_pool: Mapping[Hashable, Observed]

    @classmethod
    def of(cls, ended: Iterable[tuple[JobTraits, float]], running: Iterable[tuple[JobTraits, float]] = ()) -> Self:
        """From jobs that ended with their durations in seconds, and jobs that still run with those so far."""
        found = defaultdict[Hashable, list[tuple[float, bool]]](list)
        for jobs, has_ended in ((ended, True), (running, False)):
            for traits, seconds in jobs:
                for pool in _pools(traits):
                    found[pool].append((max(seconds, LEAST_SECONDS), has_ended))
        return cls({pool: _in_order(observations) for pool, observations in found.items()})

    def left_of(self, traits: JobTraits, after_s: float) -> DurationLeft | None:
        """What is left of such a job after so many seconds; None: too few others took longer."""
        for pool in _pools(traits):
            longer = self._by_pool[pool].longer_than(after_s) if pool in self._by_pool else None
            if longer and longer.ended.sum() >= LEAST_LONGER:
                return DurationLeft.of(longer, after_s)
        return None


def _in_order(observations: Iterable[tuple[float, bool]]) -> Observed:
    """By seconds; of equal ones, what has ended comes first."""
    seconds, ended = zip(*sorted(observations, key=lambda one: (one[0], not one[1])), strict=True)
    return Observed(np.array(seconds), np.array(ended, dtype=np.bool_))
