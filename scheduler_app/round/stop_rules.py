"""Jobs on nodes whose window is near are stopped, so that they save their work before it begins."""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db.models import OuterRef, Subquery

from jobs_app.models import Attempt, GpuClaim
from scheduler_app.round.lease import Fence
from scheduler_app.round.reconcile import DueStop, stop_due
from scheduler_app.windows.reading import LONGEST_SAVING, MARGIN, WindowRow, time_to_save

State = Attempt.State


def stop_before_windows(fence: Fence, windows: Sequence[WindowRow], now: datetime) -> None:
    """Stop the jobs on nodes whose window is so near that they could not save their work later. Idempotent."""
    if near := [row for row in windows if row.begins_at < now + LONGEST_SAVING + MARGIN]:
        stop_due(fence, list(_due(near, now)))


def _due(near: Sequence[WindowRow], now: datetime) -> Iterator[DueStop]:
    """Jobs that windows are not for, and that would be stopped now."""
    nodes = {node for row in near for node in row.nodes}
    for one in _that_save(nodes):
        saving = time_to_save(one.grace_s, one.checkpoint_s)
        for window in near:
            if one.node_id in window.nodes and one.team_id != window.team_id and window.begins_at - saving <= now:
                yield DueStop(one.job, Attempt.StopReason.DRAIN, f"{one.node}: {window.words}"[:500])
                break


class Saving(NamedTuple):
    """A job with GPUs on a node, and how long it takes to save its work."""

    job: UUID
    team_id: int
    grace_s: int
    checkpoint_s: float | None
    node_id: int
    node: str


def _that_save(nodes: Collection[int]) -> Iterator[Saving]:
    """Jobs with live attempts on these nodes that are not stopping yet, each once."""
    claims = GpuClaim.objects.open().filter(gpu__node__in=nodes)
    going_on = claims.exclude(attempt__state__in=(State.STOPPING, State.ENDED))
    told = Attempt.objects.filter(job=OuterRef("attempt__job"), checkpoint_s__isnull=False).order_by("-number")
    with_last = going_on.annotate(last_checkpoint_s=Subquery(told.values("checkpoint_s")[:1]))
    of_attempt = [f"attempt__{column}" for column in ("job", "job__team_id", "job__grace_s")]
    columns = (*of_attempt, "last_checkpoint_s", "gpu__node", "gpu__node__name")
    rows = with_last.order_by("attempt", "gpu__node").values_list(*columns)
    yield from (Saving(*row) for row in rows.distinct())
