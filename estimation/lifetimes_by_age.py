r"""Lifetimes of nodes by their age: a piecewise exponential model, of rates of loss in bands of age.

With d_b losses of nodes in the band b of age, and e_b seconds in which nodes of such an age could have been lost, both
over all intervals of a capacity type, censored ones too, and M the mean lifetime without regard to age,

.. math::
    \lambda_b = \frac{d_b + 1}{e_b + M}, \qquad
    \mathrm{E}[L - a \mid L > a] = \int_a^\infty \exp\Big(-\int_a^t \lambda(u)\,du\Big)\,dt

A band of which little is known has the rate 1 / M: a band without data changes nothing. The rates of a node are those
of its capacity type, times how often it was lost beside the others.

References
----------
.. [1] Holford, Biometrics 1980, "The Analysis of Rates and of Survivorship Using Log-Linear Models".
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from estimation.node_lifetimes import PRIOR_ENDS
from estimation.types import Bools, Floats

HOUR_S, DAY_S = 3600.0, 86_400.0
BANDS_S = (0.0, HOUR_S / 4, HOUR_S, 4 * HOUR_S, 16 * HOUR_S, 2 * DAY_S, 8 * DAY_S)
"""Where bands of age begin; the last has no end."""


class LifetimesByAge(NamedTuple):
    """Losses per second (B,) of nodes in each band of age."""

    rate: Floats

    @classmethod
    def of(cls, ends: Sequence[int] | Floats, exposure_s: Sequence[float] | Floats, *, mean_s: float) -> Self:
        """From losses (B,) and seconds (B,) in each band, shrunk to a mean lifetime."""
        return cls((np.asarray(ends) + PRIOR_ENDS) / (np.asarray(exposure_s) + PRIOR_ENDS * mean_s))

    @classmethod
    def observed(cls, length_s: Floats, ended: Bools, *, mean_s: float) -> Self:
        """From intervals of these lengths (N,), of which those without an end are right censored."""
        begins, stops = np.array(BANDS_S), np.append(BANDS_S[1:], np.inf)
        within = np.clip(length_s[:, None], begins, stops) - begins
        in_band = (length_s[:, None] >= begins) & (length_s[:, None] < stops)
        return cls.of((in_band & ended[:, None]).sum(axis=0), within.sum(axis=0), mean_s=mean_s)

    def times(self, factor: float) -> Self:
        """Those of a node that is lost so many times as often."""
        return self._replace(rate=self.rate * factor)

    def mean_left_s(self, age_s: float) -> float:
        """Mean time until a node of this age is lost."""
        begins, stops = np.maximum(BANDS_S, age_s), np.append(BANDS_S[1:], np.inf)
        width = np.maximum(stops - begins, 0.0)
        passed = np.exp(-np.cumsum(self.rate[:-1] * width[:-1]))
        there = np.concatenate([[1.0], passed])  # at the beginning of each band
        left: Floats = there * -np.expm1(-self.rate * width) / self.rate
        return float(left.sum())
