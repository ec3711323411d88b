"""Estimate of when a node that is taken out of service will be empty."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cluster_app.models import Node
from jobs_app.models import Attempt


@dataclass(frozen=True)
class NodeOccupancy:
    """Attempts on a node. `empty_at` is an estimate: None while the node is in service, or where it cannot be known."""

    jobs_running: int
    empty: bool
    empty_at: datetime | None


def occupancies(nodes: Sequence[Node], now: datetime, *, if_state: str | None = None) -> dict[str, NodeOccupancy]:
    """Occupancy by node name, in one query. `if_state`: as if all nodes were in that state."""
    names = {node.name for node in nodes}
    there = Attempt.objects.ungone().filter(claims__released_at=None, claims__gpu__node__in=nodes).distinct()
    on: dict[str, list[Attempt]] = {name: [] for name in names}
    for attempt in there.select_related("job"):
        for name in names.intersection(attempt.nodes):
            on[name].append(attempt)
    return {node.name: occupancy(if_state or node.state, on[node.name], now) for node in nodes}


def occupancy(state: str, attempts: Sequence[Attempt], now: datetime) -> NodeOccupancy:
    """Count running attempts. An attempt that has ended keeps the node occupied until its processes are proven gone."""
    running = sum(attempt.state != Attempt.State.ENDED for attempt in attempts)
    return NodeOccupancy(running, empty=not attempts, empty_at=_empty_at(state, attempts, now) if attempts else None)


def _empty_at(state: str, attempts: Iterable[Attempt], now: datetime) -> datetime | None:
    """Time at which the last attempt leaves: a drain stops every job, a cordon waits until they have finished."""
    if state == Node.State.READY:
        return None
    end = _grace_end if state == Node.State.DRAINING else _expected_end
    times = [end(attempt, now) for attempt in attempts]
    known = [time for time in times if time is not None]
    return max(known) if len(known) == len(times) else None


def _grace_end(attempt: Attempt, now: datetime) -> datetime:
    """End of the grace period, preemptible or not; it begins now for an attempt that is not stopping yet."""
    return max(now, (attempt.stopping_at or now) + timedelta(seconds=attempt.job.grace_s))


def _expected_end(attempt: Attempt, now: datetime) -> datetime | None:
    """Time at which its steps are done at the measured, else the expected rate; or its time limit, if sooner."""
    if attempt.stopping_at:
        return _grace_end(attempt, now)
    ends = [seconds for seconds in (_work_left_s(attempt), _time_left_s(attempt, now)) if seconds is not None]
    return now + timedelta(seconds=max(0.0, min(ends))) if ends else None


def _work_left_s(attempt: Attempt) -> float | None:
    rate = attempt.measured_rate or attempt.own_rate
    if attempt.job.total_steps is None or not rate:
        return None
    return (attempt.job.total_steps - max(attempt.step or 0, attempt.job.step)) / rate


def _time_left_s(attempt: Attempt, now: datetime) -> float | None:
    if attempt.job.time_limit_s is None:
        return None
    return attempt.job.time_limit_s - attempt.job.ran_s - attempt.ran_s(now)


def describe(found: NodeOccupancy, now: datetime) -> str:
    """One line of text for an administrator."""
    if found.empty:
        return "no jobs there"
    jobs = f"{found.jobs_running} job{'s' * (found.jobs_running != 1)} there" if found.jobs_running else "jobs leaving"
    if found.empty_at is None:
        return f"{jobs}; end time unknown"
    minutes = max(0, (found.empty_at - now).total_seconds()) / 60
    return f"{jobs}; empty in about {_duration(minutes)}"


def _duration(minutes: float) -> str:
    if minutes < 1:
        return "a minute"
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.0f} h"
