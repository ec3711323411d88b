"""Reconcile rows with the engines: nodes, attempts, and consequences that need no scheduling decision."""

import logging
from datetime import datetime

from django.db.models import (
    Exists,
    OuterRef,
    QuerySet,
)
from django.db.models.functions import Coalesce, Greatest

from cluster_app.engine_reports import store_conditions
from cluster_app.models import Engine, Node
from cluster_app.node_health import update_node_health
from cluster_app.services import note_drained
from cluster_app.storage import forget_missing_storage
from jobs_app.lifecycle.attempt_endings import AttemptEnd, end_attempts
from jobs_app.lifecycle.attempts import about_attempt
from jobs_app.lifecycle.dependencies import settle_dependencies
from jobs_app.models import Attempt, GpuClaim
from scheduler_app.models import SchedulerLease
from scheduler_app.round.lease import Fence
from scheduler_app.round.lost_node_notifications import announce_lost_nodes
from scheduler_app.round.power import sleep_as_reported
from scheduler_app.round.set_aside import forget_recovered
from scheduler_app.round.stop_rules import batches, due_stops, live_attempts_on, stop_due
from scheduler_app.round.store_node_reports import hear_engines

log = logging.getLogger(__name__)


def observe(fence: Fence, now: datetime) -> None:
    """Store the reports of every engine, then act on consequences that need no scheduling decision."""
    heard = hear_engines(fence, now)
    with fence.transaction():
        lost = update_node_health(
            now,
            listening_since=SchedulerLease.objects.get(pk=SchedulerLease.Loop.ENGINES).listening_since,
            conditions=heard,
        )
        store_conditions(heard)
        announce_lost_nodes(lost, now)
        sleep_as_reported(heard, now)
        forget_missing_storage(now)
    if Attempt.objects.live().exists():
        _end_attempts_on_lost_nodes(fence, now)
        stop_due(fence, due_stops(now))
    fence.check()
    settle_dependencies()  # in transactions of its own, which lock jobs in their order
    with fence.transaction():
        release_claims(now)
        SchedulerLease.objects.filter(pk=SchedulerLease.Loop.ENGINES).update(heard_at=now)
        note_drained(_drained_nodes())
        forget_recovered(now)


def release_claims(now: datetime) -> None:
    """Release the claims of attempts whose processes are proven to have ended."""
    free = GpuClaim.objects.open().filter(attempt__gone_at__isnull=False)
    free.update(released_at=Greatest(now, Coalesce("held_from", now)))  # not before they were held, if a clock was set


def _end_attempts_on_lost_nodes(fence: Fence, now: datetime) -> None:
    """Requeue the jobs of lost nodes; their GPUs stay claimed until the node reports that nothing runs on them.

    Attempts at servers of the site are ended by their engine, once the leases of all their servers are over.
    """
    of_others = Node.objects.exclude(engine__kind=Engine.Kind.SERVERS)
    lost = live_attempts_on(of_others.filter(health=Node.Health.LOST))
    for batch in batches(sorted(lost)):
        ends = {pk: AttemptEnd(now, lost=True, message=f"no heartbeat from {', '.join(lost[pk])}") for pk in batch}
        with fence.transaction():
            for ended in end_attempts(ends):
                with about_attempt(ended.attempt):
                    log.warning("the attempt is declared lost: %s", ended.end.message)


def _drained_nodes() -> QuerySet[Node]:
    """Draining nodes without a claim on their GPUs."""
    claims = GpuClaim.objects.open().filter(gpu__node=OuterRef("pk"))
    return Node.objects.filter(~Exists(claims), state=Node.State.DRAINING)
