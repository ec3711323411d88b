"""Durations of the jobs that succeeded last, from which those of others are estimated."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from estimation.durations import DurationHistory, JobTraits
from scheduler_app.models import DurationForecast

MOST_ENDED = 2_000
"""A round and a page read so many at most."""


class EndedJob(NamedTuple):
    """A job that succeeded: its traits, and its duration in seconds of its smallest gang on average GPUs."""

    owner_id: int
    name: str
    gpus: int
    seconds: float
    team_id: int


def read_ended_jobs() -> list[EndedJob]:
    """The jobs that succeeded last, the newest first."""
    ended = DurationForecast.objects.exclude(ended_at=None).order_by("-ended_at")
    return [EndedJob(*row) for row in ended.values_list(*EndedJob._fields)[:MOST_ENDED]]


def read_open_forecasts() -> frozenset[UUID]:
    """Jobs with a forecast that has not been compared with the truth."""
    return frozenset(DurationForecast.objects.filter(ended_at=None).order_by().values_list("job", flat=True))


def history_of(ended: Sequence[EndedJob]) -> DurationHistory:
    """History of these jobs, given the newest first; shared, with the estimates it has given, until a job ends."""
    return _history(tuple(ended))


@lru_cache(maxsize=1)
def _history(ended: tuple[EndedJob, ...]) -> DurationHistory:
    return DurationHistory.of(_with_traits(reversed(ended)))


def _with_traits(ended: Iterable[EndedJob]) -> Iterable[tuple[JobTraits, float]]:
    return ((JobTraits(job.owner_id, job.name, job.gpus, job.team_id), job.seconds) for job in ended)
