r"""Durations of jobs that declare none, from jobs that ended before: Helios' rolling estimate.

The estimate for a job is the exponentially decayed mean over the durations d of a pool of ended jobs, newest first,

.. math::
    R = \frac{\sum_k w^k d_k}{\sum_k w^k}, \qquad w = 0.8

The pool has the jobs of the same user, in the same team, whose names are similar (Levenshtein similarity of 0.6 or
more, the two most similar names); if there are none, those of the team with similar names; then all jobs of the user;
then all jobs. From each pool only jobs with as many GPUs are taken, if it has any. Names that differ in numbers alone
are one, and means over several names are not decayed. No name is compared with those of another team: who chooses names
could find out what others work on.

An ended job changes a few running sums, whatever their number. The spread is that of the logarithms in the pool, drawn
towards `USUAL_SPREAD` by as much as one job would: a single job shows none.

References
----------
.. [1] Hu et al., SC 2021, "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters",
   section 4.2 (QSSF; the released code takes a plain mean).
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from math import log, sqrt
from typing import NamedTuple

from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from estimation.estimate import Estimate
from estimation.scaling import Source

DECAY = 0.8
LEAST_SIMILARITY = 0.6
MOST_SIMILAR = 2
"""Names that make up a pool, the most similar first."""
NUMBERS = re.compile(r"[0-9a-f]{8,}|\d+")
"""Names that differ in these alone are one: a queue of 10,000 jobs has as many names, but few kinds of them."""
MOST_NAMES = 200
"""Names kept of each user, and of all users, those of jobs that ended most recently: a name is compared with each."""
USUAL_SPREAD = 1.0
MOST_SPREAD = 2.5
"""Of more, the mean of a log-normal quantity lies above nine tenths of its values, and says nothing any more."""
LEAST_SECONDS = 1.0


class JobTraits(NamedTuple):
    """What of a job tells of its duration: its user, its name, its GPUs, and its team."""

    user: int
    name: str
    gpus: int
    team: int = 0


class Basis(StrEnum):
    """What an estimate of a duration is based on: a declaration, a report, its array, ended jobs, a model, stages."""

    DECLARED = "declared"
    REPORTED = "reported"
    SAMPLED = "sampled"
    SIMILAR = "similar"
    SIMILAR_OF_TEAM = "similar_of_team"
    USER = "user"
    ALL = "all"
    BOOSTED = "boosted"
    STAGES = "stages"


class DurationEstimate(NamedTuple):
    """Estimated duration in seconds, and what it is based on."""

    estimate: Estimate
    basis: Basis

    @classmethod
    def declared(cls, seconds: float) -> "DurationEstimate":
        return cls(Estimate(seconds, 0.0, Source.DECLARED, 1), Basis.DECLARED)

    @classmethod
    def reported(cls, seconds: float) -> "DurationEstimate":
        return cls(Estimate(seconds, 0.0, Source.MEASURED, 1), Basis.REPORTED)


class Sums(NamedTuple):
    """Number and weighted sums of durations and of their logarithms."""

    n: int = 0
    weight: float = 0.0
    seconds: float = 0.0
    log: float = 0.0
    log_sqr: float = 0.0

    def with_one(self, seconds: float, decay: float) -> "Sums":
        """With one more duration of weight 1; the earlier ones lose weight."""
        logarithm = log(seconds)
        return Sums(
            self.n + 1,
            self.weight * decay + 1,
            self.seconds * decay + seconds,
            self.log * decay + logarithm,
            self.log_sqr * decay + logarithm**2,
        )

    @classmethod
    def total(cls, parts: Iterable["Sums"]) -> "Sums":
        return cls(*map(sum, zip(*parts, strict=True)))

    def estimate(self) -> Estimate:
        squares = max(self.log_sqr - self.log**2 / self.weight, 0.0)
        spread = sqrt((USUAL_SPREAD**2 + squares) / (1 + self.weight))
        return Estimate(self.seconds / self.weight, min(spread, MOST_SPREAD), Source.SIMILAR, self.n)


def without_numbers(traits: JobTraits) -> JobTraits:
    """The traits with a name in which all numbers are 0: names that differ in these alone are one."""
    return traits._replace(name=NUMBERS.sub("0", traits.name))


BySize = dict[int, Sums]
"""GPUs → sums."""


def _of_size(pools: Iterable[BySize], gpus: int) -> Sums | None:
    """Sums over the jobs with so many GPUs, or over all if there are none; None: no jobs at all."""
    listed = list(pools)
    parts = [pool[gpus] for pool in listed if gpus in pool] or [sums for pool in listed for sums in pool.values()]
    return Sums.total(parts) if parts else None


@dataclass(eq=False)
class _ByName:
    """Durations by name and GPUs, of the names that were used most recently, and over all names by GPUs."""

    names: dict[str, BySize] = field(default_factory=dict)
    by_size: BySize = field(default_factory=dict)

    def add(self, traits: JobTraits, seconds: float) -> None:
        of_name = self.names.pop(traits.name, {})
        of_name[traits.gpus] = of_name.get(traits.gpus, Sums()).with_one(seconds, DECAY)
        self.names[traits.name] = of_name  # the last is the newest
        if len(self.names) > MOST_NAMES:
            del self.names[next(iter(self.names))]
        self.by_size[traits.gpus] = self.by_size.get(traits.gpus, Sums()).with_one(seconds, 1.0)

    def similar(self, traits: JobTraits) -> Sums | None:
        found = process.extract(
            traits.name,
            self.names.keys(),
            scorer=Levenshtein.normalized_similarity,
            limit=MOST_SIMILAR,
            score_cutoff=LEAST_SIMILARITY,
        )
        return _of_size((self.names[name] for name, *_ in found), traits.gpus)

    def any(self, traits: JobTraits) -> Sums | None:
        return _of_size([self.by_size], traits.gpus)


@dataclass(eq=False)
class DurationHistory:
    """Durations of ended jobs, in the order of their ends."""

    _users: dict[tuple[int, int], _ByName] = field(default_factory=lambda: defaultdict(_ByName))
    """By team and user."""
    _teams: dict[int, _ByName] = field(default_factory=lambda: defaultdict(_ByName))
    _all: _ByName = field(default_factory=_ByName)
    _known: dict[JobTraits, DurationEstimate | None] = field(default_factory=dict)
    """Estimates since the last end."""

    @classmethod
    def of(cls, ended: Iterable[tuple[JobTraits, float]]) -> "DurationHistory":
        """From jobs with their durations in seconds, the oldest end first."""
        history = cls()
        for traits, seconds in ended:
            history.add(traits, seconds)
        return history

    def add(self, traits: JobTraits, seconds: float) -> None:
        """Add a job that has ended after so many seconds."""
        traits, at_least = without_numbers(traits), max(seconds, LEAST_SECONDS)
        for pool in (self._users[traits.team, traits.user], self._teams[traits.team], self._all):
            pool.add(traits, at_least)
        self._known.clear()

    def estimate(self, traits: JobTraits) -> DurationEstimate | None:
        """Duration of such a job; None before any job has ended."""
        traits = without_numbers(traits)
        if traits not in self._known:
            self._known[traits] = self._estimate(traits)
        return self._known[traits]

    def _estimate(self, traits: JobTraits) -> DurationEstimate | None:
        mine = self._users.get((traits.team, traits.user), _ByName())
        of_team = self._teams.get(traits.team, _ByName())
        pools = (
            (Basis.SIMILAR, mine.similar),
            (Basis.SIMILAR_OF_TEAM, of_team.similar),
            (Basis.USER, mine.any),
            (Basis.ALL, self._all.any),
        )
        found = ((basis, sums) for basis, of in pools if (sums := of(traits)) is not None)
        return next((DurationEstimate(sums.estimate(), basis) for basis, sums in found), None)
