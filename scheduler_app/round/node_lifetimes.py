"""Lifetimes of nodes by shrinkage: node to capacity type to a prior; checkpoint terms of attempts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db.models import Max, Q, QuerySet

from cluster_app.models import Node
from cluster_app.node_history import InBand, Observed, by_capacity_type, losses_by_age, observed_by_node
from estimation.checkpoint_plan import CheckpointTerms
from estimation.interrupted_work import Interruptions
from estimation.lifetimes_by_age import BANDS_S, LifetimesByAge
from estimation.node_lifetimes import PRIOR_ENDS, Exposure, NodeLifetime, gang_lifetime
from jobs_app.models import Attempt

HOUR, DAY = 3600.0, 86400.0
USUAL: Mapping[str, NodeLifetime] = {
    Node.CapacityType.STABLE: NodeLifetime(90 * DAY, 4 * HOUR),
    Node.CapacityType.SPOT: NodeLifetime(4 * HOUR, 2 * HOUR),
    Node.CapacityType.VOLUNTEER: NodeLifetime(8 * HOUR, 16 * HOUR),
}
"""Until anything is observed. Spot: between the zones of SkyPilot's records, 0.7 to 10 h up and 0.8 to 3.6 h down; the
others are assumptions: a failure each quarter of a year, and a machine that is lent at night."""


@dataclass(frozen=True)
class KnownLifetime:
    """Lifetime of a node, and the observations behind it."""

    lifetime: NodeLifetime
    observed: Observed
    notice_s: float


def known_lifetimes(names: Iterable[str], now: datetime) -> dict[str, KnownLifetime]:
    """Lifetimes of the nodes of these names, in four queries."""
    wanted = set(names)
    return _lifetimes(Node.objects.filter(name__in=wanted), now) if wanted else {}


def node_loss_rates(now: datetime) -> dict[str, float]:
    """Expected losses per second of every node, by name; empty where all nodes are stable."""
    if not Node.objects.exclude(capacity_type=Node.CapacityType.STABLE).exists():
        return {}
    return {name: 1 / known.lifetime.mean_up_s for name, known in _lifetimes(Node.objects.all(), now).items()}


def _lifetimes(nodes: QuerySet[Node], now: datetime) -> dict[str, KnownLifetime]:
    of_node = observed_by_node(now)
    pools = {kind: lifetime_of(seen, USUAL[kind]) for kind, seen in by_capacity_type(of_node).items()}
    found = {}
    for pk, name, kind, notice_s in nodes.values_list("pk", "name", "capacity_type", "notice_s"):
        observed = of_node.get(pk, Observed())
        known = lifetime_of(observed, pools.get(kind, USUAL[kind]))
        found[name] = KnownLifetime(known, observed, notice_s)
    return found


def lifetime_of(observed: Observed, pool: NodeLifetime) -> NodeLifetime:
    """Lifetime from what was observed, shrunk to the pool's."""
    return NodeLifetime(
        Exposure(observed.losses, observed.up_s).shrunk_mean(pool.mean_up_s),
        Exposure(observed.returns, observed.down_s).shrunk_mean(pool.mean_down_s),
        (observed.announced + PRIOR_ENDS * pool.notified) / (observed.losses + PRIOR_ENDS),
    )


def lifetimes_now(names: Iterable[str], now: datetime) -> dict[str, KnownLifetime]:
    """Lifetimes of these nodes from now on: without regard to their ages, or by them (`MOTLEY_CHECKPOINTS_BY_AGE`)."""
    known = known_lifetimes(names, now)
    return by_age(known, now) if settings.MOTLEY_CHECKPOINTS_BY_AGE and known else known


def by_age(known: Mapping[str, KnownLifetime], now: datetime) -> dict[str, KnownLifetime]:
    """Lifetimes with the mean remaining time at the nodes' ages, in two queries; a node that is down counts as new."""
    in_bands = losses_by_age(BANDS_S, now)
    up_since = Max("intervals__started_at", filter=Q(intervals__up=True, intervals__ended_at=None))
    nodes = Node.objects.filter(name__in=known).annotate(since=up_since).values_list("name", "capacity_type", "since")
    ages = {name: (kind, max((now - since).total_seconds(), 0.0) if since else 0.0) for name, kind, since in nodes}
    return {
        name: replace(one, lifetime=of_age(one.lifetime, in_bands.get(kind, []), age_s))
        for name, one in known.items()
        for kind, age_s in [ages[name]]
    }


def of_age(lifetime: NodeLifetime, in_bands: Sequence[InBand], age_s: float) -> NodeLifetime:
    """The lifetime with the mean time that a node of this age stays; as it is where nothing was observed. Pure."""
    up_s, losses = sum(band.up_s for band in in_bands), sum(band.losses for band in in_bands)
    if not up_s:
        return lifetime
    mean_s = Exposure(losses, up_s).shrunk_mean(lifetime.mean_up_s)
    of_all = LifetimesByAge.of(*zip(*in_bands, strict=True), mean_s=mean_s)
    return lifetime._replace(mean_up_s=of_all.times(mean_s / lifetime.mean_up_s).mean_left_s(age_s))


def interruptions_of(gang: Iterable[KnownLifetime]) -> Interruptions:
    """Interruptions of a gang on these nodes: the first lost node ends it; its notice is the shortest of any."""
    members = list(gang)
    return Interruptions.of(
        gang_lifetime(member.lifetime for member in members), notice_s=min(member.notice_s for member in members)
    )


def checkpoint_terms(attempts: Sequence[Attempt], now: datetime) -> dict[int, CheckpointTerms]:
    """The terms of these attempts, by primary key; none of an attempt with a node that is no longer known."""
    nodes = lifetimes_now((name for attempt in attempts for name in attempt.nodes), now)
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
