r"""Correction of intervals by how earlier forecasts turned out: conformal quantiles of their scores, by class.

The score of an outcome y under the quantiles q10, q50, q90 is where it lies on their scale, 0 at the median and 1 and
-1 at the ends of the interval, on logarithms:

.. math::
    s = \frac{\ell(y) - \ell(q_{50})}{w}, \qquad
    w = \begin{cases} \ell(q_{90}) - \ell(q_{50}) + f & y \ge q_{50} \\ \ell(q_{50}) - \ell(q_{10}) + f & y < q_{50}
    \end{cases}, \qquad \ell(x) = \ln(x + 1\ \text{min})

A corrected quantile p lies where the quantile p of the scores does. f is a least width, for futures that all agree.
While little is known the scores of a perfect forecast count as `PRIOR` outcomes beside those that were seen.

What has not happened yet is an outcome, too: later than now, a score censored from the right. Of the forecasts that
were made lately those that came true are the ones that came true soon, and without the others intervals would be
corrected to be too early. The distribution of the scores is therefore estimated by the product limit.

References
----------
.. [1] Romano, Patterson and Candès, NeurIPS 2019, "Conformalized Quantile Regression". Here asymmetric and scaled.
.. [2] Kaplan and Meier, JASA 1958, "Nonparametric Estimation from Incomplete Observations".
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple, Self

import numpy as np

from estimation.types import Bools, Floats
from forecast.future import HORIZON_S
from forecast.intervals import QUANTILES

MINUTE_S = 60.0
LEAST_WIDTH = 0.05
PRIOR = 10
"""Outcomes as which the scores of a perfect forecast count; with fewer seen, an interval is hardly corrected."""
MOST_SCORE = 5.0
"""A score beyond this counts as this: one forecast of no width that failed must not widen all others without limit."""
MOST_SCORES = 1_000
"""Of the newest outcomes of a class."""
HORIZONS_S = (600.0, 3600.0, 6 * 3600.0)
"""Limits of the classes by median, in seconds."""


SPREADS = (0.01, 0.1, 0.5)
"""Limits of the classes by width of the interval, on logarithms."""


class ForecastClass(NamedTuple):
    """Forecasts that are corrected together: of start or finish, by horizon, by known length, and by width.

    By width, since the scores of a job about which all futures agree are nearly 0: together with others they would say
    that intervals of hours are far too wide.
    """

    event: str
    horizon: int
    known_length: bool
    spread: int = 0

    @classmethod
    def of(cls, event: str, quantiles_s: Sequence[float] | Floats, *, known_length: bool) -> Self:
        low, _, high = np.log(np.maximum(quantiles_s, 0) + MINUTE_S).tolist()
        horizon = int(np.searchsorted(HORIZONS_S, quantiles_s[1], side="right"))
        spread = int(np.searchsorted(SPREADS, high - low)) if np.isfinite(high) else len(SPREADS)
        return cls(event, horizon, known_length, spread)


class Outcome(NamedTuple):
    """Quantiles in seconds from the forecast, as they were played, and the seconds that it was, or has been so far."""

    low_s: float
    median_s: float
    high_s: float
    true_s: float
    happened: bool = True
    """False: it has not happened yet, so many seconds after the forecast."""


def score(outcome: Outcome) -> float:
    """Where the outcome lies: 0 at the median, 1 at the upper end of the interval, -1 at the lower; 5 at most."""
    low, median, high, true = np.log(np.maximum(outcome[:4], 0) + MINUTE_S).tolist()
    width = (high - median if true >= median else median - low) + LEAST_WIDTH
    return float(np.clip((true - median) / width, -MOST_SCORE, MOST_SCORE))


@dataclass(frozen=True, eq=False)
class Correction:
    """Scores (3,) at which the corrected quantiles of each class lie; a class without outcomes is not corrected."""

    scores: Mapping[ForecastClass, Floats]

    @classmethod
    def of(cls, outcomes: Iterable[tuple[ForecastClass, Outcome]]) -> Self:
        """From the outcomes that are known, the newest last; those beyond a horizon are left out."""
        seen: dict[ForecastClass, list[tuple[float, bool]]] = defaultdict(list)
        for of_class, outcome in outcomes:
            if np.isfinite(outcome).all():
                seen[of_class].append((score(outcome), outcome.happened))
        return cls({of_class: _scores(newest[-MOST_SCORES:]) for of_class, newest in seen.items()})

    def corrected(self, of_class: ForecastClass, quantiles_s: Floats) -> Floats:
        """The quantiles (3,) in seconds, corrected and in order; inf: beyond the horizon."""
        at = self.scores.get(of_class)
        if at is None or not np.isfinite(quantiles_s).all():
            return quantiles_s
        low, median, high = np.log(np.maximum(quantiles_s, 0) + MINUTE_S).tolist()
        width = np.where(at >= 0, high - median, median - low) + LEAST_WIDTH
        found: Floats = np.maximum.accumulate(np.maximum(np.exp(median + at * width) - MINUTE_S, 0.0))
        return np.where(found > HORIZON_S, np.inf, found)


def _scores(seen: Sequence[tuple[float, bool]]) -> Floats:
    usual = NormalDist().inv_cdf(QUANTILES[-1])
    perfect = [(NormalDist().inv_cdf((n + 0.5) / PRIOR) / usual, True) for n in range(PRIOR)]
    scores, happened = np.array([*perfect, *seen], dtype=float).T
    return censored_quantiles(scores, happened > 0)


def censored_quantiles(values: Floats, happened: Bools) -> Floats:
    """Quantiles by the product limit: of what has not happened its value is a lower bound. The greatest counts as seen.

    Where all has happened they are those of `numpy.quantile`.
    """
    order = np.lexsort((~happened, values))  # of equal values, what has happened comes first
    values, happened = values[order], happened[order]
    happened[-1] = True
    n = len(values)
    later = np.cumprod(1 - happened / np.arange(n, 0, -1))
    before = 1 - np.append(1.0, later[:-1])
    found: Floats = np.interp(QUANTILES, (before * n / (n - 1))[happened], values[happened])
    return found
