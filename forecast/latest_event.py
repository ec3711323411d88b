r"""The latest of several events whose quantiles are known: product of distribution functions, inverted by bisection.

Each event has a log-normal distribution with one spread below its median and another above, through its three
quantiles; the events are taken to be independent:

.. math::
    F(t) = \prod_i \Phi\!\left(\frac{\ell(t) - \ell(q_{50,i})}{\sigma_i^{\pm}}\right), \qquad
    \sigma_i^{+} = \frac{\ell(q_{90,i}) - \ell(q_{50,i})}{\Phi^{-1}(0.9)}, \qquad \ell(x) = \ln(x + 1\ \text{min})
"""

from collections.abc import Callable, Sequence
from statistics import NormalDist

import numpy as np

from estimation.types import Floats
from forecast.calibration import MINUTE_S
from forecast.future import HORIZON_S
from forecast.intervals import QUANTILES

BEYOND_S = 2 * HORIZON_S
"""What stands for a quantile beyond the horizon."""
LEAST_SPREAD = 1e-6
HALVINGS = 60
NORMAL = NormalDist()


def latest_of(quantiles_s: Sequence[Floats]) -> Floats:
    """Quantiles (3,) in seconds of the latest of the events, each with its quantiles (3,); inf: beyond the horizon."""
    finite = np.minimum(np.maximum(np.stack(quantiles_s), 0.0), BEYOND_S)
    low, median, high = np.log(finite + MINUTE_S).T
    usual = NORMAL.inv_cdf(QUANTILES[-1])
    below, above = (np.maximum(spread / usual, LEAST_SPREAD) for spread in (median - low, high - median))

    def probability(at: float) -> float:
        z = (at - median) / np.where(at >= median, above, below)
        return float(np.prod([NORMAL.cdf(one) for one in z.tolist()]))

    found = np.exp([_inverse(probability, q, float(low.min()), float(high.max()) + 1) for q in QUANTILES]) - MINUTE_S
    return np.where(found > HORIZON_S, np.inf, np.maximum(found, 0.0))


def _inverse(probability: Callable[[float], float], q: float, least: float, most: float) -> float:
    """Where an increasing function reaches q."""
    for _ in range(HALVINGS):
        middle = (least + most) / 2
        least, most = (middle, most) if probability(middle) < q else (least, middle)
    return most
