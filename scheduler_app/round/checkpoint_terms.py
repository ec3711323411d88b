"""Checkpoint terms of attempts: how long their nodes stay, and what checkpoints cost the job before."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from estimation.checkpoint_plan import CheckpointTerms
from jobs_app.models import Attempt
from scheduler_app.round.node_lifetimes import interruptions_of, known_lifetimes


def checkpoint_terms(attempts: Sequence[Attempt], now: datetime) -> dict[int, CheckpointTerms]:
    """The terms of these attempts, by primary key; none of an attempt with a node that is no longer known."""
    nodes = known_lifetimes((name for attempt in attempts for name in attempt.nodes), now)
    costs = _costs(attempt.job_id for attempt in attempts if attempt.number > 1 or attempt.checkpoint_s is not None)
    return {
        attempt.pk: CheckpointTerms(interruptions_of(nodes[name] for name in attempt.nodes), costs.get(attempt.job_id))
        for attempt in attempts
        if attempt.nodes and all(name in nodes for name in attempt.nodes)
    }


def _costs(jobs: Iterable[UUID]) -> Mapping[UUID, float]:
    """Seconds of the last measured checkpoint of each job."""
    pks = set(jobs)
    if not pks:
        return {}
    measured = Attempt.objects.filter(job__in=pks, checkpoint_s__isnull=False)
    return {
        job: seconds
        for job, seconds in measured.order_by("pk").values_list("job", "checkpoint_s")
        if seconds is not None
    }
