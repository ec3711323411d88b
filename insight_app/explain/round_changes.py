"""Changes of a round against the one before, by job, and the shadow prices of the rounds up to it."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from scheduler_app.models import Round
from scheduler_app.round.archive import Archived, archive_of

MOST_PRICES = 100
"""Rounds of which prices are shown."""


class Placement(NamedTuple):
    """GPUs that a round gave a job."""

    gpu_type: str
    gpus: int

    def __str__(self) -> str:
        return f"{self.gpus} x {self.gpu_type.upper()}"


class Change(NamedTuple):
    """Change that a round made to a job."""

    job: str
    deed: str
    before: Placement | None
    after: Placement | None


class PricesOfRound(NamedTuple):
    number: int
    started_at: datetime
    prices: Mapping[str, float]


def changes_since_the_last(record: Round, archived: Archived) -> tuple[Round | None, list[Change]]:
    """The previous committed round and the changes since it; None if that round has no snapshot."""
    last = Round.objects.committed().filter(number__lt=record.number).defer("archive").first()
    before = archive_of(last) if last else None
    return (last, changes_between(before, archived)) if before else (None, [])


def changes_between(before: Archived, after: Archived) -> list[Change]:
    """Jobs that were started, moved, resized or stopped, or that ended, in this order; pure."""
    had, has = _placements(before), _placements(after)
    queue = set(after.snapshot.jobs)
    changed = [job for job in {**has, **had} if had.get(job) != has.get(job)]
    changes = [
        Change(job, _deed(had.get(job), has.get(job), is_in_queue=job in queue), had.get(job), has.get(job))
        for job in changed
    ]
    return sorted(changes, key=lambda change: DEEDS.index(change.deed))


DEEDS = ("started", "moved", "resized", "stopped", "ended")


def _deed(before: Placement | None, after: Placement | None, *, is_in_queue: bool) -> str:
    if before is None:
        return "started"
    if after is None:
        return "stopped" if is_in_queue else "ended"
    return "resized" if before.gpu_type == after.gpu_type else "moved"


def _placements(archived: Archived) -> dict[str, Placement]:
    snapshot, assignment = archived.snapshot, archived.plan.assignment
    return {
        snapshot.jobs[row]: Placement(snapshot.type_of(k), int(snapshot.problem.gpus[k]))
        for row, k in ((row, int(assignment[row])) for row in (assignment >= 0).nonzero()[0])
    }


def prices_up_to(last: Round) -> list[PricesOfRound]:
    """Shadow prices of the latest rounds up to this one, oldest first; those of other policies have other units."""
    rounds = Round.objects.committed().filter(number__lte=last.number).order_by("-number")
    rows = rounds.values_list("policy", "number", "started_at", "prices")[:MOST_PRICES]
    return [PricesOfRound(*row) for policy, *row in rows if policy == last.policy][::-1]
