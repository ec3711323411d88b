"""Features of a job's duration: the rolling estimate, history encodings of user, team and request, size, limits, time.

A history encoding is the mean logarithm of the durations of the ended jobs of a group, exponentially decayed and drawn
towards that of all jobs by as much as `PRIOR` jobs would. All features are of what is known at one moment: jobs that
end later change nothing, so that a model learns from what it will have when it is asked.
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from heapq import heappop, heappush
from math import log
from typing import NamedTuple, Self

from estimation.durations import LEAST_SECONDS, Basis, DurationEstimate, DurationHistory, JobTraits

DECAY = 0.95
"""Of history encodings: the last twenty jobs of a group count most."""
PRIOR = 2.0
MOST_COUNTED = 50
"""More jobs behind a rolling estimate make it no better."""
NO_LIMIT = -1.0
"""Below the logarithm of every limit. No feature is NaN: scikit-learn 1.9 fails where a whole column is."""
BASES = (Basis.SIMILAR, Basis.SIMILAR_OF_TEAM, Basis.USER, Basis.ALL)


class Submission(NamedTuple):
    """What is known of a job at its submission."""

    traits: JobTraits
    at: datetime
    gpu_types: str = ""
    """Requested, as one text; empty: any."""
    time_limit_s: float | None = None


class EndedSubmission(NamedTuple):
    """A job that ended, and its duration in seconds."""

    submission: Submission
    ended_at: datetime
    seconds: float


Features = tuple[float, ...]
FEATURES_VERSION = 1
"""Raised with each change of what the features are: a model that was fitted to others is not used."""


@dataclass
class _Mean:
    """Exponentially decayed mean of the logarithms of durations, and the newest."""

    weight: float = 0.0
    total: float = 0.0
    last: float | None = None

    def add(self, logarithm: float) -> None:
        self.weight, self.total = self.weight * DECAY + 1, self.total * DECAY + logarithm
        self.last = logarithm

    @property
    def mean(self) -> float:
        return self.total / self.weight

    def towards(self, prior: float) -> float:
        return (self.total + PRIOR * prior) / (self.weight + PRIOR)


@dataclass(eq=False)
class FeatureHistory:
    """Running sums over ended jobs, in the order of their ends."""

    rolling: DurationHistory = field(default_factory=DurationHistory)
    _means: dict[Hashable, _Mean] = field(default_factory=dict)

    @classmethod
    def of(cls, ended: Iterable[tuple[Submission, float]]) -> Self:
        """From jobs with their durations in seconds, the oldest end first."""
        history = cls()
        for submission, seconds in ended:
            history.add(submission, seconds)
        return history

    def add(self, ended: Submission, seconds: float) -> None:
        self.rolling.add(ended.traits, seconds)
        logarithm = log(max(seconds, LEAST_SECONDS))
        for group in ("all", *_groups(ended)):
            self._means.setdefault(group, _Mean()).add(logarithm)

    def features(self, job: Submission) -> Features | None:
        """Features of such a job; None before any job has ended."""
        rolling = self.rolling.estimate(job.traits)
        if rolling is None:
            return None
        everybody = self._means["all"].mean
        known = [self._means.get(group, _Mean()) for group in _groups(job)]
        last = known[0].last
        encodings = (mean.towards(everybody) for mean in known)
        return (*_of_rolling(rolling), *encodings, everybody if last is None else last, *_of_request(job))


def _groups(job: Submission) -> tuple[Hashable, ...]:
    """Groups whose jobs tell of this one: its user in its team, its team, the same size there, the same request."""
    team, gpus = job.traits.team, job.traits.gpus
    return (("user", team, job.traits.user), ("team", team), ("size", team, gpus), ("types", team, job.gpu_types))


def _of_rolling(found: DurationEstimate) -> Features:
    estimate, basis = found
    return (log(estimate.median), estimate.spread, min(estimate.n, MOST_COUNTED), float(BASES.index(basis)))


def _of_request(job: Submission) -> Features:
    limit = log(job.time_limit_s) if job.time_limit_s else NO_LIMIT
    return (log(max(job.traits.gpus, 1)), limit, float(job.at.hour), float(job.at.weekday()))


class Observation(NamedTuple):
    """An ended job with its features and its rolling estimate, as they were at its submission."""

    job: EndedSubmission
    features: Features
    rolling: DurationEstimate


def observations(ended: Iterable[EndedSubmission]) -> Iterator[Observation]:
    """Replay jobs in the order of their submission, each with only those that had ended by then behind it.

    The first jobs, before any has ended, are left out.
    """
    history, running = FeatureHistory(), list[tuple[datetime, int, EndedSubmission]]()
    for order, job in enumerate(sorted(ended, key=lambda one: one.submission.at)):
        while running and running[0][0] <= job.submission.at:
            *_, done = heappop(running)
            history.add(done.submission, done.seconds)
        features, rolling = history.features(job.submission), history.rolling.estimate(job.submission.traits)
        if features and rolling:
            yield Observation(job, features, rolling)
        heappush(running, (job.ended_at, order, job))
