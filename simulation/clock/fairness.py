"""Fairness of a finished simulation: finish-time fairness of jobs, delivered over entitled work of teams."""

import numpy as np

from allocation.fairness import finish_time_ratios, jain_index
from allocation.types import Floats, Ints
from simulation.clock.state import State


def finish_time_ratios_of(state: State) -> Floats:
    """Finish-time fairness rho of each finished job (`allocation.fairness`), alone on the same cluster.

    Between two whole numbers of GPUs the duration alone is interpolated; on s GPUs, fewer than the
    smallest gang g, it is D(g) g / s.
    """
    done = np.flatnonzero(~np.isnan(state.finish_s))
    jct_s = state.finish_s[done] - state.jobs.arrival_s[done]
    share = state.capacity.sum() / _mean_active(state.jobs.arrival_s[done], state.finish_s[done])
    alone_s = np.stack([_alone_s(state, done, j, share) for j in range(state.capacity.size)], axis=1)
    return finish_time_ratios(jct_s, alone_s, state.capacity)


def _mean_active(arrival_s: Floats, finish_s: Floats) -> Floats:
    """Mean number of active jobs over the life of each job."""
    times = np.concatenate([arrival_s, finish_s])
    order = np.argsort(times, kind="stable")
    count = np.cumsum(np.repeat([1, -1], len(arrival_s))[order])
    integral = np.concatenate([[0], np.cumsum(count[:-1] * np.diff(times[order]))])
    at = np.empty(len(times))
    at[order] = integral
    came, went = at[: len(arrival_s)], at[len(arrival_s) :]
    mean: Floats = np.divide(went - came, finish_s - arrival_s, out=np.ones(len(came)), where=finish_s > arrival_s)
    return np.maximum(mean, 1)


def _alone_s(state: State, rows: Ints, j: int, share: Floats) -> Floats:
    """Duration of each job alone on its share of GPUs of type j; inf if it cannot run on that type."""
    jobs, on = state.jobs, state.jobs.configurations
    columns = np.flatnonzero((on.usage[j] > 0) & (on.usage[j] == on.gpus))
    columns = columns[np.argsort(on.gpus[columns], kind="stable")]
    gangs = on.gpus[columns]
    best = np.maximum.accumulate(jobs.kind_rate[:, columns], axis=1)[jobs.kind[rows]]
    runs = np.asarray((best > 0).any(axis=1))
    if not runs.any():
        return np.full(len(runs), np.inf)
    rows, share, best = rows[runs], share[runs], best[runs]
    size = np.maximum(share, gangs[(best > 0).argmax(axis=1)])
    low_s, high_s = (jobs.steps[rows] / _within(best, gangs, whole) for whole in (np.floor(size), np.ceil(size)))
    alone_s = np.full(len(runs), np.inf)
    alone_s[runs] = (low_s + (size - np.floor(size)) * (high_s - low_s)) * size / share
    return alone_s


def _within(best: Floats, gangs: Ints, most: Floats) -> Floats:
    """Best rate of each row on at most so many GPUs."""
    place = np.searchsorted(gangs, most, side="right") - 1
    rate: Floats = best[np.arange(len(best)), place]
    return rate


def jain_index_of(state: State) -> float:
    """Jain's index of the teams' delivered over entitled work.

    Delivered is work in seconds of the average GPU; entitled is a team's part of the cluster, by weight
    among the teams with active jobs, while they had some. A job without a team is a team of its own, of its own weight.
    """
    jobs = state.jobs
    done = np.flatnonzero(~np.isnan(state.finish_s))
    teams, team = np.unique(jobs.team[done], return_inverse=True)
    weight = np.ones(len(teams))
    alone = jobs.team[done] < 0
    weight[team] = np.where(alone, jobs.weight[done], jobs.team_weight[done])
    work = jobs.steps[done] * jobs.base_gpus[done] / jobs.base_rate[done]
    delivered = np.bincount(team, work, minlength=len(teams))
    x = delivered / _entitled(jobs.arrival_s[done], state.finish_s[done], team, weight)
    return jain_index(x)


def _entitled(arrival_s: Floats, finish_s: Floats, team: Ints, weight: Floats) -> Floats:
    """Each team's weight over the weight of all teams with active jobs, integrated while it had active jobs."""
    events = sorted(
        [(when, 1, t) for when, t in zip(arrival_s.tolist(), team.tolist(), strict=True)]
        + [(when, -1, t) for when, t in zip(finish_s.tolist(), team.tolist(), strict=True)]
    )
    active, since = np.zeros(len(weight), dtype=np.int64), np.zeros(len(weight))
    due, together, per_weight, last_s, jobs = np.zeros(len(weight)), 0.0, 0.0, 0.0, 0
    for now_s, change, t in events:
        per_weight += (now_s - last_s) / together if jobs else 0
        last_s, jobs = now_s, jobs + change
        if active[t] == 0:
            since[t], together = per_weight, together + weight[t]
        active[t] += change
        if active[t] == 0:
            due[t] += weight[t] * (per_weight - since[t])
            together -= weight[t]
    return due
