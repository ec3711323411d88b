"""Checkpoints that jobs report with their progress: the newest of each job, also those that were replaced since."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from database.bulk_insert import insert_many
from database.bulk_update import rewrite
from estimation.training_work import Reached
from jobs_app.models import CheckpointHistory

MOST_KEPT = 100


class MadeCheckpoint(NamedTuple):
    """A checkpoint as its job reported it."""

    at: datetime
    step: int
    """The last one that was reported before."""
    took_s: float | None
    attempt: int
    loss: float | None
    worth: float | None = None
    """Steps of the initial batch that the steps up to it were worth; None: its batch is not tuned, or not recorded."""


def note_checkpoints(news: Mapping[UUID, MadeCheckpoint]) -> None:
    """Add a checkpoint to the history of each of these jobs. In a transaction."""
    if not news:
        return
    stored = CheckpointHistory.objects.select_for_update().filter(job__in=news).order_by("pk")
    known = dict(stored.values_list("job", "made"))
    rewrite(
        CheckpointHistory,
        ("made",),
        {job: ([*made, _as_json(news[job])][-MOST_KEPT:],) for job, made in known.items()},
    )
    insert_many(
        CheckpointHistory,
        [{"job_id": job, "made": [_as_json(one)]} for job, one in news.items() if job not in known],
    )


def reported_checkpoints(job: UUID) -> list[MadeCheckpoint]:
    """The newest checkpoints that the job reported, the oldest first."""
    made = CheckpointHistory.objects.filter(job=job).values_list("made", flat=True).first()
    return [MadeCheckpoint(datetime.fromtimestamp(at / 1000, UTC), *rest) for at, *rest in made or ()]


def worth_by_step(jobs: Collection[UUID]) -> dict[UUID, list[Reached]]:
    """The reported checkpoints of these jobs of which the worth is known, the oldest first; of no job no query."""
    if not jobs:
        return {}
    stored = CheckpointHistory.objects.filter(job__in=jobs).values_list("job", "made")
    return {
        job: [Reached(one[1], one[5]) for one in made if len(one) > 5 and one[5] is not None] for job, made in stored
    }


def _as_json(one: MadeCheckpoint) -> list[Any]:
    told = [int(1000 * one.at.timestamp()), one.step, one.took_s, one.attempt, one.loss]
    return told if one.worth is None else [*told, one.worth]
