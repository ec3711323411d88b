r"""Probabilities of meeting deadlines: the part of futures that do, judged by calibration and Brier score.

If a job is done by its deadline in k of n futures, the probability is the mean of its posterior under Jeffreys' prior,
which is certain of nothing that a few futures agree about:

.. math::
    p = \frac{k + 1/2}{n + 1}

Stated probabilities p_i with outcomes o_i (1: met) are judged by

.. math::
    B = \frac{1}{N} \sum_i (p_i - o_i)^2

and, in bins of p, by the part that was met beside the mean of what was stated. Whoever states the part that is met over
all, whatever the job, has the Brier score :math:`\bar o (1 - \bar o)`.

References
----------
.. [1] Brier, Monthly Weather Review 1950, "Verification of forecasts expressed in terms of probability".
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np

from estimation.accuracy import FEWEST
from estimation.types import Bools, Floats
from forecast.future import HORIZON_S, Played

LIMITS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
"""Of the bins by stated probability."""


def in_time(futures: Sequence[Played], deadline_s: Floats) -> Floats:
    """Probability (m,) that each job's work is done by its deadline, in seconds from now.

    nan: it has none (inf), one that has passed, or one beyond the horizon, by when it has not ended in some futures.
    """
    finish_s, done = (np.stack([getattr(future, name) for future in futures]) for name in ("finish_s", "done"))
    met = (done & (finish_s <= deadline_s)).sum(axis=0)
    beyond = (deadline_s > HORIZON_S) & np.isinf(finish_s).any(axis=0)
    unknown = np.isinf(deadline_s) | (deadline_s <= 0) | beyond
    return np.where(unknown, np.nan, (met + 0.5) / (len(futures) + 1))


class Outcome(NamedTuple):
    """A stated probability, and whether the deadline was met."""

    stated: float
    met: bool


class Bin(NamedTuple):
    """Outcomes whose stated probabilities lie between two limits: their mean, and the part that was met."""

    least: float
    most: float
    outcomes: int
    stated: float
    met: float

    @property
    def too_few(self) -> bool:
        """Whether these are too few outcomes for the figures to say anything."""
        return self.outcomes < FEWEST


class Calibration(NamedTuple):
    """How stated probabilities turned out; `brier_of_mean`: the score of stating for each the part that was met."""

    outcomes: int
    met: float
    brier: float
    brier_of_mean: float
    bins: tuple[Bin, ...]
    """Those with outcomes."""

    @classmethod
    def of(cls, outcomes: Iterable[Outcome]) -> Self | None:
        """None: nothing has been stated whose outcome is known."""
        if not (listed := list(outcomes)):
            return None
        stated, happened = np.array(listed, dtype=float).T
        mean = float(happened.mean())
        brier = float(((stated - happened) ** 2).mean())
        return cls(len(listed), mean, brier, mean * (1 - mean), tuple(_bins(stated, happened)))

    @property
    def too_few(self) -> bool:
        """Whether these are too few outcomes for the figures to say anything."""
        return self.outcomes < FEWEST


def _bins(stated: Floats, happened: Floats) -> Iterable[Bin]:
    for least, most in pairwise(LIMITS):
        within: Bools = (stated >= least) & ((stated < most) | (most == LIMITS[-1]))
        if within.any():
            yield Bin(least, most, int(within.sum()), float(stated[within].mean()), float(happened[within].mean()))
