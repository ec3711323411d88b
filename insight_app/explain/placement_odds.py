"""Odds of a running job where it is placed, beside those on the steadiest and the least steady node of its type."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from cluster_app.models import Node
from estimation.checkpoint_plan import CheckpointTerms
from estimation.interrupted_work import Interruptions
from insight_app.explain.checkpoint_outlook import outlook_of, restore_s_of, running_with_terms
from jobs_app.models import Attempt, Job
from scheduler_app.round.node_lifetimes import KnownLifetime, interruptions_of, lifetimes_now

ALIKE = 1.5
"""Another node is named if it is expected to stay longer or shorter by this factor."""


@dataclass(frozen=True)
class NodeOdds:
    """What is expected of a job on a node, or on so many like it as it has."""

    node: str
    mean_up_s: float
    """Until the first of its nodes is expected to go."""
    done_in_s: float | None
    """Expected; None: how much is left is not known, or it would never be done."""
    in_time: float | None
    """Probability of being done before the deadline; None: it has none."""


@dataclass(frozen=True)
class PlacementOdds:
    """The odds where the job is, and elsewhere; `detail` says both in a sentence."""

    placed: NodeOdds
    elsewhere: Sequence[NodeOdds]

    @property
    def detail(self) -> str:
        here = f"placed on {self.placed.node}: it is expected to stay for {_stay(self.placed.mean_up_s)}"
        others = [
            f"{_chance(one)} on {one.node} ({_stay(one.mean_up_s)})"
            if one.in_time is not None
            else f"{one.node} for {_stay(one.mean_up_s)}"
            for one in self.elsewhere
        ]
        if self.placed.in_time is None:
            return ", ".join([here, *others])
        return f"{here}; done by its deadline with a probability of {_chance(self.placed)} there, {', '.join(others)}"


def _chance(odds: NodeOdds) -> str:
    return f"{odds.in_time:.2f}"


def placement_odds(job: Job, attempts: Sequence[Attempt], now: datetime) -> PlacementOdds | None:
    """The odds of the job's running attempt; None if none runs, or no node of its type stays longer or shorter."""
    if not Node.objects.exclude(capacity_type=Node.CapacityType.STABLE).exists():
        return None
    found = running_with_terms(attempts, now)
    if found is None:
        return None
    attempt, terms = found
    others = compared(_others(attempt, now), terms.interruptions, len(attempt.nodes))
    restore_s = restore_s_of(job, attempts)

    def odds(node: str, interruptions: Interruptions) -> NodeOdds:
        on_it = CheckpointTerms(interruptions, terms.cost_s)
        outlook = outlook_of(job, attempt, on_it, restore_s=restore_s, now=now)
        done_in_s = outlook.left.mean_s if outlook.left else None
        return NodeOdds(node, interruptions.mean_up_s, done_in_s, outlook.in_time)

    elsewhere = [odds(name, interruptions) for name, interruptions in others.items()]
    placed = odds(" and ".join(attempt.nodes), terms.interruptions)
    return PlacementOdds(placed, elsewhere) if elsewhere else None


def _others(attempt: Attempt, now: datetime) -> dict[str, KnownLifetime]:
    """Nodes in service of its GPU type on which it is not."""
    of_type = Node.objects.schedulable().filter(gpu_type=attempt.gpu_type_id).exclude(name__in=attempt.nodes)
    return lifetimes_now(of_type.values_list("name", flat=True), now)


def compared(others: Mapping[str, KnownLifetime], placed: Interruptions, nodes: int) -> dict[str, Interruptions]:
    """The steadiest and the least steady of these nodes, where they differ from where the job is. Pure.

    For a gang, of as many nodes like it.
    """
    of_gangs = {name: interruptions_of([known] * nodes) for name, known in sorted(others.items())}
    if not of_gangs:
        return {}
    ends = (
        max(of_gangs, key=lambda name: of_gangs[name].mean_up_s),
        min(of_gangs, key=lambda n: of_gangs[n].mean_up_s),
    )
    ratios = {name: of_gangs[name].mean_up_s / placed.mean_up_s for name in ends}
    return {name: of_gangs[name] for name, ratio in ratios.items() if not 1 / ALIKE < ratio < ALIKE}


def _stay(seconds: float) -> str:
    """`9 h`, `40 min` or `90 days`: estimates of lifetimes are no finer."""
    minutes, hours, days = seconds / 60, seconds / 3600, seconds / 86_400
    return f"{minutes:.0f} min" if hours < 1 else f"{hours:.0f} h" if days < 2 else f"{days:.0f} days"
