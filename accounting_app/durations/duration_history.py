"""Durations of the jobs that succeeded last, from which those of others are estimated."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from django.db.models import QuerySet
from django.db.models.functions import Coalesce

from accounting_app.models import DurationForecast
from accounting_app.models.durations import MOST_OF_REQUEST, OBSERVATION
from estimation.duration_features import FeatureHistory, Submission
from estimation.durations import JobTraits

MOST_ENDED = 2_000
"""A round and a page read so many at most."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class EndedJob(NamedTuple):
    """A job that succeeded: its traits, its duration in seconds of its smallest gang on average GPUs, its request.

    Of an array it is the first task that ended, with the mean duration of all that did.
    """

    job: UUID
    owner_id: int
    name: str
    gpus: int
    seconds: float
    team_id: int
    gpu_types: str
    time_limit_s: int | None


OBSERVED = [Coalesce("array_mean_s", "seconds") if name == "seconds" else name for name in EndedJob._fields]


def read_ended_jobs() -> list[EndedJob]:
    """The jobs that succeeded last, the newest first; an array is one of them."""
    return [EndedJob(*row) for row in observations().values_list(*OBSERVED)[:MOST_ENDED]]


def observations() -> QuerySet[DurationForecast]:
    """Rows that later jobs are estimated from, the newest end first."""
    return DurationForecast.objects.filter(OBSERVATION).order_by("-ended_at")


def read_open_forecasts() -> frozenset[UUID]:
    """Jobs with a forecast that has not been compared with the true duration."""
    return frozenset(DurationForecast.objects.filter(ended_at=None).order_by().values_list("job", flat=True))


def submission_of(job: EndedJob) -> Submission:
    """The job as it was submitted; ids are UUIDv7, which begin with the time in milliseconds."""
    traits = JobTraits(job.owner_id, job.name, job.gpus, job.team_id)
    at = EPOCH + timedelta(milliseconds=job.job.int >> 80)
    return Submission(traits, at, job.gpu_types, job.time_limit_s)


def request_of(gpu_types: Iterable[str]) -> str:
    """Requested GPU types as text."""
    return ",".join(sorted(gpu_types))[:MOST_OF_REQUEST]


def history_of(ended: Sequence[EndedJob]) -> FeatureHistory:
    """History of these jobs, given the newest first; shared, with the estimates it has given, until a job ends."""
    return _history(tuple(ended))


@lru_cache(maxsize=1)
def _history(ended: tuple[EndedJob, ...]) -> FeatureHistory:
    return FeatureHistory.of((submission_of(job), job.seconds) for job in reversed(ended))
