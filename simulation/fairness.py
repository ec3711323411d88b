"""How fairly a finished trace was served: finish-time fairness of jobs, and what teams got of what they were due."""

import numpy as np

from allocation.arrays import Floats, Ints
from simulation.state import State


def finish_time_ratios(state: State) -> Floats:
    r"""Give each finished job's rho: its completion time over the one that it would have had on its part alone.

    .. math::
        \rho_i = \frac{JCT_i}{\sum_j c_j D_{ij}(C / N_i) / \sum_j c_j}

    N_i is the mean number of active jobs over its life, D_ij(s) the duration alone on s GPUs of type j, over the types
    that can run it; between two whole s it is interpolated, and below its smallest gang g it is D(g) g / s.

    References
    ----------
    .. [1] Jayaram Subramanya et al., SOSP 2023, "Sia: Heterogeneity-aware, goodput-optimized ML-cluster scheduling",
       section 5.
    """
    done = np.flatnonzero(~np.isnan(state.finish_s))
    jct_s = state.finish_s[done] - state.jobs.arrival_s[done]
    share = state.capacity.sum() / _mean_active(state.jobs.arrival_s[done], state.finish_s[done])
    weighted, of_types = np.zeros(len(done)), np.zeros(len(done))
    for j, gpus in enumerate(state.capacity.tolist()):
        alone_s = _alone_s(state, done, j, share)
        runs = np.isfinite(alone_s)
        weighted[runs] += gpus * alone_s[runs]
        of_types[runs] += gpus
    ratios: Floats = jct_s * of_types / weighted
    return ratios


def _mean_active(arrival_s: Floats, finish_s: Floats) -> Floats:
    """How many jobs were active, on the mean over the life of each."""
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
    """The duration of each job alone on its share of GPUs, all of type j; inf where it cannot run there."""
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
    """The best rate of each row on so many GPUs at most."""
    place = np.searchsorted(gangs, most, side="right") - 1
    rate: Floats = best[np.arange(len(best)), place]
    return rate


def jain_index(state: State) -> float:
    r"""Give Jain's index :math:`(\sum_t x_t)^2 / (n \sum_t x_t^2)` of what teams got over what they were due.

    What they got is work, in seconds of the average GPU; what they were due is their part of the cluster, by weight
    among the teams with active jobs, while they had some. A job without a team is a team of its own, of its own weight.
    """
    jobs = state.jobs
    done = np.flatnonzero(~np.isnan(state.finish_s))
    teams, team = np.unique(jobs.team[done], return_inverse=True)
    weight = np.ones(len(teams))
    alone = jobs.team[done] < 0
    weight[team[alone]] = jobs.weight[done[alone]]
    work = jobs.steps[done] * jobs.base_gpus[done] / jobs.base_rate[done]
    delivered = np.bincount(team, work, minlength=len(teams))
    x = delivered / _entitled(jobs.arrival_s[done], state.finish_s[done], team, weight)
    return float(x.sum() ** 2 / (len(x) * (x**2).sum()))


def _entitled(arrival_s: Floats, finish_s: Floats, team: Ints, weight: Floats) -> Floats:
    """Each team's weight over that of all teams with active jobs, integrated over the time in which it had some."""
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
