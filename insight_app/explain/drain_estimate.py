"""Estimate of when a node that is taken out of service will be empty."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import numpy as np

from cluster_app.models import Node
from estimation.types import Floats
from forecast.latest_event import latest_of
from insight_app.explain.remaining_work import seconds_left
from insight_app.start_forecasts.showing import Interval, ShownForecast, read_forecasts
from insight_app.start_forecasts.wording import format_interval
from jobs_app.models import Attempt, Job

MOST_NAMED = 5
LONGEST_S = 10 * 365 * 86_400.0
"""Of a job that takes longer no end is told: it may ask for more years than dates have."""


@dataclass(frozen=True)
class NodeOccupancy:
    """Attempts on a node. `empty_at` is an estimate: None while the node is in service, or where it cannot be known."""

    jobs_running: int
    empty: bool
    empty_at: datetime | None
    within: Interval | None = None
    """When it is empty by the forecasts of its jobs; None: one of them has none, or all are stopped at once."""
    made_at: datetime | None = None
    """When the oldest of these forecasts was made."""
    jobs: Sequence[Job] = ()
    """Jobs that run there, of all teams: a drain moves them."""


def occupancies(nodes: Sequence[Node], now: datetime, *, if_state: str | None = None) -> dict[str, NodeOccupancy]:
    """Occupancy by node name, in two queries. `if_state`: as if all nodes were in that state."""
    names = {node.name for node in nodes}
    there = Attempt.objects.with_processes().filter(claims__released_at=None, claims__gpu__node__in=nodes).distinct()
    attempts = list(there.select_related("job"))
    on: dict[str, list[Attempt]] = {name: [] for name in names}
    for attempt in attempts:
        for name in names.intersection(attempt.nodes):
            on[name].append(attempt)
    forecasts = read_forecasts(attempt.job for attempt in attempts)
    return {node.name: occupancy(if_state or node.state, on[node.name], now, forecasts) for node in nodes}


def occupancy(
    state: str, attempts: Sequence[Attempt], now: datetime, forecasts: Mapping[UUID, ShownForecast] | None = None
) -> NodeOccupancy:
    """Count running attempts. An attempt that has ended keeps the node occupied until its processes are proven gone."""
    running = [attempt.job for attempt in attempts if attempt.state != Attempt.State.ENDED]
    within, made_at = _forecast(state, attempts, now, forecasts or {})
    empty_at = within.median if within else _empty_at(state, attempts, now) if attempts else None
    return NodeOccupancy(len(running), not attempts, empty_at, within, made_at, running)


def _forecast(
    state: str, attempts: Sequence[Attempt], now: datetime, forecasts: Mapping[UUID, ShownForecast]
) -> tuple[Interval | None, datetime | None]:
    """Forecast of when the last job leaves a node that takes no new jobs, and the time at which it was made."""
    leave = [attempt for attempt in attempts if not attempt.stopping_at]
    made = [forecasts[attempt.job_id].made_at for attempt in leave if attempt.job_id in forecasts]
    if state in (Node.State.READY, Node.State.DRAINING) or not made or len(made) < len(leave):
        return None, None
    ends = [_ends_s(forecasts[attempt.job_id].finish, now) for attempt in leave]
    stopped = [np.full(3, (_grace_end(one, now) - now).total_seconds()) for one in attempts if one.stopping_at]
    low, median, high = (now + timedelta(seconds=s) if np.isfinite(s) else None for s in latest_of([*ends, *stopped]))
    return Interval(low, median, high), min(made)


def _ends_s(finish: Interval, now: datetime) -> Floats:
    """Quantiles (3,) in seconds from now; inf: beyond the horizon."""
    moments = (finish.low, finish.median, finish.high)
    return np.array([np.inf if at is None else (at - now).total_seconds() for at in moments])


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
    """Time at which the job's steps are done at the measured, else the expected rate, or its time limit if sooner.

    None: it is not known, or years away.
    """
    if attempt.stopping_at:
        return _grace_end(attempt, now)
    ends = [
        seconds
        for seconds in (seconds_left(attempt.job.work, attempt), _time_left_s(attempt, now))
        if seconds is not None
    ]
    if not ends or min(ends) > LONGEST_S:
        return None
    return now + timedelta(seconds=max(0.0, min(ends)))


def _time_left_s(attempt: Attempt, now: datetime) -> float | None:
    if attempt.job.time_limit_s is None:
        return None
    return attempt.job.time_limit_s - attempt.job.ran_s - attempt.ran_s(now)


def describe(found: NodeOccupancy, now: datetime) -> str:
    """One line of text, without the names of jobs."""
    if found.empty:
        return "no jobs there"
    jobs = f"{found.jobs_running} job{'s' * (found.jobs_running != 1)} there" if found.jobs_running else "jobs leaving"
    if found.within is not None:
        return f"{jobs}; empty {format_interval(found.within, now)}"
    if found.empty_at is None:
        return f"{jobs}; end time unknown"
    return f"{jobs}; empty {format_interval(Interval(*3 * (found.empty_at,)), now)}"


def name_jobs(found: NodeOccupancy) -> str:
    """The jobs that run there, for administrators: `net, bert and 2 more`."""
    names = [str(job) for job in found.jobs]
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
