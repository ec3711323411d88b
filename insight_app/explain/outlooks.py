"""Outlooks of a job: its deadline, its next checkpoints, and how probable each placement is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil, isfinite

import numpy as np

from cluster_app.models import LOST_AFTER, Node
from estimation.checkpoint_plan import CheckpointTerms, daly_interval, with_notice
from estimation.interrupted_work import Duration, Interruptions, duration_of, expected_loss
from estimation.types import Floats
from insight_app.explain.remaining_work import seconds_left
from insight_app.explain.restart_cost import restart_cost
from insight_app.start_forecasts.showing import read_forecast
from jobs_app.models import Attempt, Job
from scheduler_app.round.node_lifetimes import KnownLifetime, checkpoint_terms, interruptions_of, lifetimes_now


@dataclass(frozen=True)
class DeadlineOutlook:
    """A job's deadline, the probability that it is done by then, and when the forecast was made."""

    deadline: datetime
    in_time: float
    made_at: datetime
    passed: bool = False
    """Whether it has passed, and the job is not done."""


def deadline_outlook(job: Job, now: datetime) -> DeadlineOutlook | None:
    """Outlook of a job; None if it has no deadline, or one to come without a forecast that reaches it."""
    if job.deadline and job.deadline <= now and not job.is_final:
        return DeadlineOutlook(job.deadline, 0.0, now, passed=True)
    found = read_forecast(job) if job.deadline else None
    if job.deadline is None or found is None or found.in_time is None:
        return None
    return DeadlineOutlook(job.deadline, found.in_time, found.made_at)


LEAST_ASSUMED_S = 1.0
"""Of a checkpoint that was not measured, where a restore is declared to take no time."""
MOST_SEGMENTS = 10_000
"""Of a plan: longer ones are computed with as many longer segments."""


@dataclass(frozen=True)
class CheckpointOutlook:
    """Effect of checkpoints and losses of nodes on the rest of a job."""

    interruptions: Interruptions
    cost_s: float
    measured: bool
    """Whether the cost was measured; else it is taken to be that of a restore."""
    restore_s: float
    interval_s: float
    """Seconds of work between two checkpoints."""
    gpus: int
    left: Duration | None
    """Time until the job is done; None: it is not known how much is left."""
    lost_s: float | None
    """Expected seconds of work that losses of nodes take from the rest."""
    in_time: float | None
    """Probability of being done before the deadline; None: it has none."""

    @property
    def lost_gpu_s(self) -> float | None:
        return None if self.lost_s is None else self.lost_s * self.gpus

    @property
    def at_stake_gpu_s(self) -> float:
        """Mean work lost with a node: half a checkpoint interval."""
        return self.interval_s / 2 * self.gpus


def checkpoint_outlook(job: Job, attempts: Sequence[Attempt], now: datetime) -> CheckpointOutlook | None:
    """The outlook of the job's running attempt, all of the job's attempts given; None if none runs."""
    found = running_with_terms(attempts, now)
    return outlook_of(job, *found, restore_s=_restore_s(job, attempts), now=now) if found else None


def running_with_terms(attempts: Sequence[Attempt], now: datetime) -> tuple[Attempt, CheckpointTerms] | None:
    """The running attempt with its terms; None if none runs, or a node of it is no longer known."""
    running = [attempt for attempt in attempts if attempt.state == Attempt.State.RUNNING]
    terms = checkpoint_terms(running, now)
    return (running[0], terms[running[0].pk]) if running and running[0].pk in terms else None


def outlook_of(
    job: Job, attempt: Attempt, terms: CheckpointTerms, *, restore_s: float, now: datetime
) -> CheckpointOutlook:
    """The outlook of an attempt. A lost node is noticed after `LOST_AFTER`; the time in the queue is not counted."""
    cost_s = max(job.restore_s, LEAST_ASSUMED_S) if terms.cost_s is None else terms.cost_s
    stay = with_notice(terms.interruptions, cost_s)._replace(mean_down_s=LOST_AFTER.total_seconds())
    lost_every_s = 1 / stay.loss_rate if stay.loss_rate else float("inf")
    interval_s = daly_interval(cost_s, lost_every_s)
    work_s = seconds_left(job.work, attempt)
    segments = None if work_s is None else _segments(work_s, interval_s, cost_s)
    left = None if segments is None else _duration(segments, restore_s, stay)
    return CheckpointOutlook(
        interruptions=stay,
        cost_s=cost_s,
        measured=terms.cost_s is not None,
        restore_s=restore_s,
        interval_s=interval_s,
        gpus=attempt.gpu_count,
        left=left,
        lost_s=None if segments is None else float(expected_loss(segments, stay).sum()),
        in_time=left.done_within((job.deadline - now).total_seconds()) if left and job.deadline else None,
    )


def _segments(work_s: float, interval_s: float, cost_s: float) -> Floats:
    number = max(min(ceil(work_s / max(interval_s, work_s / MOST_SEGMENTS)), MOST_SEGMENTS), 1) if work_s else 1
    return np.full(number, work_s / number + cost_s)


def _duration(segments: Floats, restore_s: float, stay: Interruptions) -> Duration | None:
    """Expected duration; None if no segment is ever completed: a checkpoint takes far longer than the nodes stay."""
    with np.errstate(over="ignore", invalid="ignore"):
        left = duration_of(segments, restore_s, stay)
    return left if isfinite(left.mean_s + left.variance) else None


def _restore_s(job: Job, attempts: Sequence[Attempt]) -> float:
    """Expected seconds from launch to first step where it runs; a node that is lost stops at once."""
    found = restart_cost(job, attempts)
    return found.time.start_s if found else job.restore_s


ALIKE = 1.5
"""Another node is named if it is expected to stay longer or shorter by this factor."""


@dataclass(frozen=True)
class NodeOdds:
    """Expected outcome of a job on a node, or on as many such nodes as it has."""

    node: str
    mean_up_s: float
    """Until the first of its nodes is expected to go."""
    done_in_s: float | None
    """Expected; None: how much is left is not known, or it would never be done."""
    in_time: float | None
    """Probability of being done before the deadline; None: it has none."""


@dataclass(frozen=True)
class PlacementOdds:
    """Expected outcome of a job on its present nodes and on others; `detail` is a sentence on both."""

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
    """Odds of the job's running attempt; None if none runs, or all nodes of its type have the same lifetime."""
    if not Node.objects.exclude(capacity_type=Node.CapacityType.STABLE).exists():
        return None
    found = running_with_terms(attempts, now)
    if found is None:
        return None
    attempt, terms = found
    others = compared(_others(attempt, now), terms.interruptions, len(attempt.nodes))
    restore_s = _restore_s(job, attempts)

    def odds(node: str, interruptions: Interruptions) -> NodeOdds:
        on_it = CheckpointTerms(interruptions, terms.cost_s)
        outlook = outlook_of(job, attempt, on_it, restore_s=restore_s, now=now)
        done_in_s = outlook.left.mean_s if outlook.left else None
        return NodeOdds(node, interruptions.mean_up_s, done_in_s, outlook.in_time)

    elsewhere = [odds(name, interruptions) for name, interruptions in others.items()]
    placed = odds(" and ".join(attempt.nodes), terms.interruptions)
    return PlacementOdds(placed, elsewhere) if elsewhere else None


def _others(attempt: Attempt, now: datetime) -> dict[str, KnownLifetime]:
    """Other nodes in service of the job's GPU type."""
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
