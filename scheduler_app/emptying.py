"""When a node that is taken out of service will be empty."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cluster_app.models import Node
from jobs_app.models import Attempt


@dataclass(frozen=True)
class Occupancy:
    """What is on a node. `empty_at` is an estimate: None where nobody takes it away, or nobody can know."""

    jobs_running: int
    empty: bool
    empty_at: datetime | None


def occupancies(nodes: Sequence[Node], now: datetime, *, if_state: str | None = None) -> dict[str, Occupancy]:
    """By the nodes' names; in one query, however many they are. `if_state`: as if all of them were in that state."""
    names = {node.name for node in nodes}
    there = Attempt.objects.ungone().filter(claims__released_at=None, claims__gpu__node__in=nodes).distinct()
    on: dict[str, list[Attempt]] = {name: [] for name in names}
    for attempt in there.select_related("job"):
        for name in names.intersection(attempt.nodes):
            on[name].append(attempt)
    return {node.name: occupancy(if_state or node.state, on[node.name], now) for node in nodes}


def occupancy(state: str, attempts: Sequence[Attempt], now: datetime) -> Occupancy:
    """An attempt that has ended may still have processes: until these are proven gone, the node is not empty."""
    running = sum(attempt.state != Attempt.State.ENDED for attempt in attempts)
    return Occupancy(running, empty=not attempts, empty_at=_empty_at(state, attempts, now) if attempts else None)


def _empty_at(state: str, attempts: Iterable[Attempt], now: datetime) -> datetime | None:
    """When the last one goes. A drain tells every job to go; a cordon waits until they have finished."""
    if state == Node.State.READY:
        return None
    leave = stopped_at if state == Node.State.DRAINING else done_at
    times = [leave(attempt, now) for attempt in attempts]
    known = [time for time in times if time is not None]
    return max(known) if len(known) == len(times) else None


def stopped_at(attempt: Attempt, now: datetime) -> datetime:
    """At the end of its grace at the latest, preemptible or not; one that is told only now has all of it."""
    return max(now, (attempt.stopping_at or now) + timedelta(seconds=attempt.job.grace_s))


def done_at(attempt: Attempt, now: datetime) -> datetime | None:
    """When its steps are done at the rate that was measured, else counted on; or its time is up, if that is sooner."""
    if attempt.stopping_at:
        return stopped_at(attempt, now)
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


def words_of(found: Occupancy, now: datetime) -> str:
    """For a person who takes the node out, or waits for it."""
    if found.empty:
        return "nothing runs there"
    jobs = f"{found.jobs_running} job{'s' * (found.jobs_running != 1)} there" if found.jobs_running else "being cleared"
    if found.empty_at is None:
        return f"{jobs}; when they end is not known"
    minutes = max(0, (found.empty_at - now).total_seconds()) / 60
    return f"{jobs}; empty in about {_span(minutes)}"


def _span(minutes: float) -> str:
    if minutes < 1:
        return "a minute"
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.0f} h"
