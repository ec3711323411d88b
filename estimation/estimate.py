r"""Estimate: a log-normal quantity with its mean, spread, source and number of observations.

Of a quantity X with mean m and spread s, the standard deviation of its logarithm, what is left of it after a has gone
follows the distribution of X given that X > a:

.. math::
    \mathrm{E}[X - a \mid X > a] = m\,\frac{\Phi(s - z)}{\Phi(-z)} - a, \qquad
    z = \frac{\ln a - \mu}{s}, \quad \mu = \ln m - \frac{s^2}{2}

so that a job which has outlived what was expected of it is expected to go on for about as long again, not to end now.
"""

from math import exp, inf, log, log1p
from statistics import NormalDist
from typing import NamedTuple

from estimation.scaling import Source

NORMAL = NormalDist()
LOW, HIGH = 0.1, 0.9
"""Limits of an estimate: the quantiles between which four of five quantities lie, if it is right."""
LEAST_TAIL = 1e-12
"""Beyond this probability the quotient above loses its digits, and its limit is taken, an exponential distribution of
mean a s / z."""


class Estimate(NamedTuple):
    """An expected value > 0, in the unit of what is estimated, and how far it can be relied on."""

    mean: float
    spread: float
    """Standard deviation of its logarithm; 0: it is known."""
    source: Source
    n: int
    """Observations behind it."""

    def mean_left(self, after: float = 0.0) -> float:
        """Mean of what is left after so much has gone."""
        if after <= 0 or not self.spread:
            return max(self.mean - after, 0.0)
        z = (log(after) - self._mu) / self.spread
        if (tail := NORMAL.cdf(-z)) < LEAST_TAIL:
            return after * self.spread / z
        return max(self.mean * NORMAL.cdf(self.spread - z) / tail - after, 0.0)

    def quantile_left(self, p: float, after: float = 0.0) -> float:
        """What is left after so much has gone, with probability p (0 < p < 1) no more than this."""
        if not self.spread:
            return max(self.mean - after, 0.0)
        z = (log(after) - self._mu) / self.spread if after > 0 else -inf
        if (tail := NORMAL.cdf(-z)) < LEAST_TAIL:
            return -log1p(-p) * after * self.spread / z
        beyond = max((1 - p) * tail, LEAST_TAIL**2)  # probability that X exceeds the quantile
        return max(exp(self._mu - self.spread * NORMAL.inv_cdf(beyond)) - after, 0.0)

    @property
    def median(self) -> float:
        return exp(self._mu)

    @property
    def _mu(self) -> float:
        return log(self.mean) - self.spread**2 / 2
