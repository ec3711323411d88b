r"""Demand for nodes some hours ahead: ridge regression of its mean over the horizon on its own past and the calendar.

What is predicted is the change from now to the mean over the next `horizon` steps,

.. math::
    y_i = \frac{1}{F} \sum_{k=i}^{i+F-1} u_k - u_i,

from the differences of :math:`u_i` to its means over the last half hour to the last week, what the same hours of
yesterday and of a week ago brought, and the time of the day and of the week. Each horizon has a regression of its own
(direct, not recursive), fitted on steps whose horizon has passed: nothing after step i is looked at.

References
----------
.. [1] Hu et al., SC 2021, "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters",
   section 5 (CES; its released forecast reads values that lie inside its own horizon).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from estimation.types import Floats, Ints

DAY_H, WEEK_H = 24.0, 168.0
WINDOWS_H = (0.5, 1.0, 3.0, 6.0, DAY_H, WEEK_H)
"""Of the means with which the present value is compared."""
HARMONICS = 2
RIDGE = 1e-3
"""Of standardised features, per sample."""
MOST_SAMPLES_H = 90 * DAY_H


@dataclass(frozen=True)
class NodeDemand:
    """Nodes in use by step (n,), the oldest first. `start_h`: hour of the week of step 0, from Monday 0:00 on."""

    used: Floats
    step_h: float
    start_h: float = 0.0

    @property
    def first(self) -> int:
        """The first step with a week and a day before it, which the features need."""
        return self._steps(WEEK_H + DAY_H)

    def _steps(self, hours: float) -> int:
        return max(round(hours / self.step_h), 1)

    def features(self, positions: Ints, horizon: int) -> Floats:
        """Features (p, f) of these steps, from their past alone."""
        now = self.used[positions]
        columns = [np.ones(len(now)), *(now - self._means(positions, self._steps(hours)) for hours in WINDOWS_H)]
        for hours in (DAY_H, WEEK_H):
            then = positions - self._steps(hours)
            end = then + min(horizon, self._steps(hours)) - 1
            columns += [self._means(end, horizon) - self.used[then], now - self.used[then]]
        return np.stack([*columns, *self._calendar(positions)], axis=1)

    def mean_ahead(self, positions: Ints, horizon: int) -> Floats:
        """True means (p,) over the `horizon` steps from each position on."""
        return self._means(positions + horizon - 1, horizon)

    def _means(self, ends: Ints, steps: int) -> Floats:
        """Means over the `steps` values that end with each position."""
        sums = np.concatenate([[0.0], np.cumsum(self.used)])
        means: Floats = (sums[ends + 1] - sums[ends + 1 - steps]) / steps
        return means

    def _calendar(self, positions: Ints) -> list[Floats]:
        hour = (self.start_h + positions * self.step_h) % WEEK_H
        angle, weekend = 2 * np.pi * hour / DAY_H, (hour >= 5 * DAY_H).astype(float)
        waves = [wave(k * angle) for k in range(1, HARMONICS + 1) for wave in (np.sin, np.cos)]
        return [*waves, weekend, weekend * np.sin(angle), weekend * np.cos(angle)]


@dataclass(frozen=True)
class DemandModel:
    """Regression for each of several horizons, in steps."""

    horizons: Sequence[int]
    coefficients: Sequence[Floats]

    def forecast(self, demand: NodeDemand, step: int) -> list[float]:
        """Mean demand over each horizon from this step on; nodes, 0 at least. Values after the step are not read."""
        position = np.array([step])
        changes = [
            float(demand.features(position, horizon)[0] @ coefficients)
            for horizon, coefficients in zip(self.horizons, self.coefficients, strict=True)
        ]
        return [max(float(demand.used[step]) + change, 0.0) for change in changes]


def fit_demand(demand: NodeDemand, horizons: Sequence[int]) -> DemandModel | None:
    """Fit a regression for each horizon on the demand so far; None: it is shorter than nine days and the horizon."""
    coefficients = []
    for horizon in horizons:
        last = len(demand.used) - horizon
        first = max(demand.first, last - round(MOST_SAMPLES_H / demand.step_h))
        if last - first < DAY_H / demand.step_h:
            return None
        positions = np.arange(first, last + 1)
        change = demand.mean_ahead(positions, horizon) - demand.used[first : last + 1]
        coefficients.append(_ridge(demand.features(positions, horizon), change))
    return DemandModel(tuple(horizons), coefficients)


def _ridge(features: Floats, target: Floats) -> Floats:
    scale = features.std(axis=0)
    scale[scale == 0] = 1.0
    standard = features / scale
    gram = standard.T @ standard + RIDGE * len(standard) * np.eye(standard.shape[1])
    coefficients: Floats = np.linalg.solve(gram, standard.T @ target) / scale
    return coefficients
