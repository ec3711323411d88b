r"""Accuracy of estimates beside the truth: mean absolute percentage error, bias factor, and rank correlation.

.. math::
    \mathrm{MAPE} = \frac{1}{n} \sum_i \frac{|\hat x_i - x_i|}{x_i}, \qquad
    \mathrm{factor} = \exp\,\mathrm{median}_i \left| \ln \frac{\hat x_i}{x_i} \right|, \qquad
    \rho = \mathrm{corr}(\mathrm{rank}\,\hat x,\ \mathrm{rank}\,x)

A few estimates that are far too high make the first as large as one likes; the second is what half of them keep to. The
third (Spearman) is what a policy gets that only orders jobs.
"""

from typing import NamedTuple

import numpy as np

from estimation.types import Floats

FEWEST = 30
"""Of fewer outcomes the figures are chance."""
LEAST = 1.0
"""Seconds below count as this: a job that took no time has no percentage."""


class Accuracy(NamedTuple):
    """Accuracy of n estimates; the errors are NaN where n is 0."""

    n: int
    mape: float
    """Relative: 0.5 is 50 %."""
    factor: float
    """Half of the estimates are within this factor of the truth; 1: exact."""
    rank_correlation: float | None
    """-1 to 1; None where all are equal."""

    @property
    def is_chance(self) -> bool:
        return self.n < FEWEST


def accuracy_of(estimated: Floats, true: Floats, *, least: float = LEAST) -> Accuracy:
    """Accuracy of these estimates (n,) >= 0 of these truths (n,) >= 0, in one unit; smaller ones count as `least`."""
    if not true.size:
        return Accuracy(0, np.nan, np.nan, None)
    truth, at_least = np.maximum(true, least), np.maximum(estimated, least)
    mape = float((np.abs(estimated - truth) / truth).mean())
    factor = float(np.exp(np.median(np.abs(np.log(at_least / truth)))))
    return Accuracy(true.size, mape, factor, _rank_correlation(estimated, true))


def _rank_correlation(x: Floats, y: Floats) -> float | None:
    """Spearman's rank correlation; equal values have the mean of their ranks."""
    a, b = (_ranks(values) for values in (x, y))
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a**2).sum() * (b**2).sum()))
    return float((a * b).sum()) / size if size else None


def _ranks(values: Floats) -> Floats:
    _, of_value, count = np.unique(values, return_inverse=True, return_counts=True)
    mean_rank = count.cumsum() - (count - 1) / 2
    ranks: Floats = mean_rank[of_value]
    return ranks
