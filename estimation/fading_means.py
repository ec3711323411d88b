"""Fading means of what running jobs report: rates of workloads in one configuration, and their gradient noise."""

from math import sqrt
from typing import NamedTuple, Self

MOST_REPORTS = 200
"""Window of the mean of a rate: older reports lose weight, so that a changed program shows."""
MOST_NOISES = 20
"""Window of that of the noise, which grows during training."""


class FadingRate(NamedTuple):
    """Mean rate in steps/s, the standard deviation between progress reports, and their number."""

    rate: float = 0.0
    spread: float = 0.0
    reports: int = 0

    def with_reports(self, rate: float, reports: int) -> Self:
        """With a new rate, weighted by the reports behind it."""
        old = min(self.reports, MOST_REPORTS)
        share = reports / (old + reports)
        delta = rate - self.rate
        variance = (1 - share) * (self.spread**2 + share * delta**2) if old else 0.0
        return self._replace(rate=self.rate + share * delta, spread=sqrt(variance), reports=self.reports + reports)


class FadingNoise(NamedTuple):
    """Mean squared norm of the gradient, mean variance of the gradient of one sample, and the number of reports."""

    sqr: float = 0.0
    sample_var: float = 0.0
    reports: int = 0

    def with_reports(self, sqr: float, sample_var: float, reports: int = 1) -> Self:
        """With so many equal reports: a plain mean while there are few, an exponential one after."""
        first = min(reports, max(MOST_NOISES - self.reports, 0))
        of_few = self.reports / (self.reports + first) if first else 1.0
        kept = of_few * (MOST_NOISES / (MOST_NOISES + 1)) ** (reports - first)
        return self._replace(
            sqr=sqr + kept * (self.sqr - sqr),
            sample_var=sample_var + kept * (self.sample_var - sample_var),
            reports=self.reports + reports,
        )
