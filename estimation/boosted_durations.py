r"""Durations by gradient boosting: quartiles of the logarithm, judged beside the rolling estimate on jobs held out.

Trees for the three quartiles of the logarithm of a duration (`estimation.gradient_boosting`) are fitted to the features
of ended jobs (`estimation.duration_features`). The estimate is the log-normal distribution of the same median and
distance of quartiles,

.. math::
    \mu = q_{1/2}, \qquad s = \frac{q_{3/4} - q_{1/4}}{2\,\Phi^{-1}(3/4)}

The last tenth of the jobs by submission is held out. A model that was fitted to those that had ended before the first
of them is compared with the rolling estimate, for each pool that the rolling estimate takes: where half of its
medians are within a smaller factor of the truth, it is used, elsewhere it is not. What is used is then fitted to all.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from estimation.accuracy import Accuracy, accuracy_of
from estimation.duration_features import (
    BASES,
    EndedSubmission,
    FeatureHistory,
    Features,
    Observation,
    Submission,
    observations,
)
from estimation.durations import LEAST_SECONDS, MOST_SPREAD, Basis, DurationEstimate
from estimation.estimate import NORMAL, Estimate
from estimation.gradient_boosting import QuantileTrees, fit_quantile_trees
from estimation.scaling import Source
from estimation.types import Floats

QUARTILES = (0.25, 0.5, 0.75)
APART = 2 * NORMAL.inv_cdf(QUARTILES[-1])
"""Distance of the quartiles of the standard normal distribution."""
LEAST_SPREAD = 0.1
HELD_OUT = 0.1
MOST_LEARNED = 20_000
"""Jobs that a model is fitted to, those that ended last: older ones tell little of what people run now."""
MOST_DISTINCT = 5_000
"""Jobs with different features that are estimated at once; of more, the others by the rolling estimate, for speed."""
FEWEST_JOBS = 300
"""Of fewer, those held out would be too few to judge by (`estimation.accuracy.FEWEST`)."""


class Comparison(NamedTuple):
    """How good the model and the rolling estimate were on the same jobs."""

    basis: Basis | None
    """The pool that the rolling estimate took; None: all jobs held out."""
    rolling: Accuracy
    boosted: Accuracy

    @property
    def is_better(self) -> bool:
        """Whether the model is, on enough jobs to say so."""
        return not self.boosted.is_chance and self.boosted.factor < self.rolling.factor


class ModelCard(NamedTuple):
    """How many jobs a model learned from, and how good it was on those held out."""

    jobs: int
    comparisons: tuple[Comparison, ...]
    """Of all jobs held out, then of each pool that has some."""

    @property
    def used_for(self) -> frozenset[Basis]:
        """The pools in place of which the model is used."""
        return frozenset(one.basis for one in self.comparisons if one.basis and one.is_better)


@dataclass(frozen=True, eq=False)
class BoostedDurations:
    """A fitted model, with the number of jobs that it learned from and the pools in place of which it is used."""

    trees: QuantileTrees
    jobs: int
    used_for: frozenset[Basis]

    def estimates(self, features: Iterable[Features]) -> dict[Features, DurationEstimate]:
        """Estimates for jobs of these features, of the first `MOST_DISTINCT` that differ."""
        distinct = list(islice(dict.fromkeys(features), MOST_DISTINCT))
        if not distinct:
            return {}
        means, spreads = log_normal(self.trees.predict(np.array(distinct)))
        return {
            row: DurationEstimate(Estimate(mean, spread, Source.FITTED, self.jobs), Basis.BOOSTED)
            for row, mean, spread in zip(distinct, means, spreads, strict=True)
        }


class DurationEstimator(NamedTuple):
    """The rolling estimate, and a model in its place where that is better."""

    history: FeatureHistory
    model: BoostedDurations | None = None

    def estimate(self, job: Submission) -> DurationEstimate | None:
        return self.estimates([job])[0]

    def estimates(self, jobs: Sequence[Submission]) -> list[DurationEstimate | None]:
        """Durations of such jobs; None before any job has ended."""
        rolling = [self.history.rolling.estimate(job.traits) for job in jobs]
        if self.model is None:
            return rolling
        chosen = [found is not None and found.basis in self.model.used_for for found in rolling]
        features = [self.history.features(job) if use else None for job, use in zip(jobs, chosen, strict=True)]
        boosted = self.model.estimates(row for row in features if row)
        return [boosted.get(row, found) if row else found for row, found in zip(features, rolling, strict=True)]


def log_normal(quartiles: Floats) -> tuple[list[float], list[float]]:
    """Means and spreads of log-normal durations, from quartiles (m, 3) of the logarithm."""
    low, median, high = np.sort(quartiles, axis=1).T  # trees of two levels may cross
    spread = np.clip((high - low) / APART, LEAST_SPREAD, MOST_SPREAD)
    mean: Floats = np.maximum(np.exp(median + spread**2 / 2), LEAST_SECONDS)
    return mean.tolist(), spread.tolist()


def fit_durations(ended: Iterable[EndedSubmission]) -> tuple[BoostedDurations, ModelCard] | None:
    """Fit a model and judge it; None: fewer than `FEWEST_JOBS` tell something."""
    return fit_observations(list(observations(ended)))


def fit_observations(observed: Sequence[Observation]) -> tuple[BoostedDurations, ModelCard] | None:
    """As `fit_durations`, from jobs in the order of their submission with their features."""
    if len(observed) < FEWEST_JOBS:
        return None
    card = ModelCard(len(observed), _comparisons(observed))
    return BoostedDurations(_fit(observed), card.jobs, card.used_for), card


def _fit(observed: Sequence[Observation]) -> QuantileTrees:
    rows = np.array([one.features for one in observed])
    seconds = np.maximum([one.job.seconds for one in observed], LEAST_SECONDS)
    return fit_quantile_trees(rows, np.log(seconds), QUARTILES)


def _comparisons(observed: Sequence[Observation]) -> tuple[Comparison, ...]:
    """Of all jobs held out, and by pool."""
    held_out = observed[-max(int(len(observed) * HELD_OUT), 1) :]
    start = held_out[0].job.submission.at
    learned = [one for one in observed[: -len(held_out)] if one.job.ended_at <= start]
    if not learned:
        return ()
    quartiles = _fit(learned).predict(np.array([one.features for one in held_out]))
    pairs = list(zip(held_out, np.exp(np.median(quartiles, axis=1)).tolist(), strict=True))
    groups = [(basis, [pair for pair in pairs if pair[0].rolling.basis == basis]) for basis in BASES]
    return _comparison(None, pairs), *(_comparison(basis, of_pool) for basis, of_pool in groups if of_pool)


def _comparison(basis: Basis | None, pairs: Sequence[tuple[Observation, float]]) -> Comparison:
    """Of medians: a mean lies above them by what the spread is thought to be, which is not what is compared."""
    true = np.array([one.job.seconds for one, _ in pairs])
    rolling = np.array([one.rolling.estimate.median for one, _ in pairs])
    return Comparison(basis, accuracy_of(rolling, true), accuracy_of(np.array([median for _, median in pairs]), true))
