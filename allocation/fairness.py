"""Measures of how fair a schedule was: finish-time fairness of jobs, and Jain's index. Used live and in simulations."""

import numpy as np

from allocation.types import Floats, Ints


def finish_time_ratios(jct_s: Floats, alone_s: Floats, gpus: Floats | Ints) -> Floats:
    r"""Finish-time fairness rho (m,): completion time over the one that a job had alone on 1/N of the cluster.

    .. math::
        \rho_i = \frac{JCT_i}{\sum_j c_j D_{ij} / \sum_j c_j}, \quad j \text{ over the GPU types that can run job } i

    Parameters
    ----------
    jct_s
        Completion time (m,) from submission to end.
    alone_s
        D (m, n): duration alone on C / N_i GPUs, all of type j, N_i being the mean number of active jobs over the life
        of job i; inf where the type cannot run it.
    gpus
        c (n,): GPUs of each type.

    References
    ----------
    .. [1] Jayaram Subramanya et al., SOSP 2023, "Sia: Heterogeneity-aware, goodput-optimized ML-cluster scheduling",
       section 5.
    """
    runs = np.isfinite(alone_s)
    weighted_s = (np.where(runs, alone_s, 0.0) * gpus).sum(axis=1)
    ratios: Floats = jct_s * (runs * gpus).sum(axis=1) / weighted_s
    return ratios


def jain_index(received: Floats) -> float:
    r"""Jain's index :math:`(\sum_t x_t)^2 / (n \sum_t x_t^2)`: 1 if all are equal, 1/n if one has all.

    It is nan if no tenant received anything.
    """
    squares = received.size * float((received**2).sum())
    return float(received.sum() ** 2) / squares if squares else float("nan")


FORGOTTEN_S = 4 * 3600.0
"""Seconds after which a team's backlog has faded to a part 1/e."""


def entitled_shares(weight: Floats, demand: Floats) -> Floats:
    """Share (t,) of the cluster that each team is entitled to: weighted max-min fairness, by water-filling.

    A team is entitled to its weight over that of all teams with demand, but to no more than it demands; what it leaves
    goes to the others. Where all demand together is less than the cluster, shares are parts of the demand.

    Parameters
    ----------
    weight
        Weights (t,), > 0.
    demand
        Part (t,) of the cluster that the team's unfinished jobs can use; it may be more than 1.

    Returns
    -------
    Floats
        Shares (t,) that add up to 1; all 0 if there is no demand.
    """
    share, open_ = np.zeros(len(weight)), demand > 0
    while open_.any():
        level = (1 - share.sum()) / weight[open_].sum()
        met = open_ & (demand <= weight * level)
        if not met.any():
            share[open_] = weight[open_] * level
            break
        share[met], open_ = demand[met], open_ & ~met
    shares: Floats = share / max(share.sum(), 1e-300)
    return shares


LEAST_WEIGHT_PART = 0.05
"""Of a team whose budget is used up: it goes on where others leave GPUs idle, and never starves."""


def weight_within_budget(used: float, elapsed: float) -> float:
    r"""Part of its weight that a team has as its budget is used: how fast the rest may be used, over the even pace.

    .. math::
        f(u, t) = \min\!\left(1,\ \max\!\left(0.05,\ \frac{1 - u}{1 - t}\right)\right)

    A team that uses its budget evenly, or slower, has its whole weight. It is continuous in both.

    Parameters
    ----------
    used
        u, part of the budget that is used; it may be more than 1.
    elapsed
        t, part of the period that has passed, 0 to 1.
    """
    if used <= elapsed:
        return 1.0
    if used >= 1:
        return LEAST_WEIGHT_PART
    return max(LEAST_WEIGHT_PART, (1 - used) / (1 - elapsed))


def later_backlog(backlog_s: Floats, behind: Floats, seconds: float) -> Floats:
    r"""Virtual queue (t,) of each team after some seconds more: work it was entitled to and did not receive.

    .. math::
        Q_t \leftarrow \max(0,\ Q_t\, e^{-\Delta / W} + (e_t - d_t)\, \Delta)

    Parameters
    ----------
    backlog_s
        Q (t,) before, in seconds of the whole cluster.
    behind
        Entitled less delivered share (t,), e - d.
    seconds
        Length of the interval; W is `FORGOTTEN_S`.

    References
    ----------
    .. [1] Neely, "Stochastic Network Optimization with Application to Communication and Queueing Systems", 2010,
       section 4.4 (virtual queues).
    """
    later: Floats = np.maximum(0, backlog_s * np.exp(-seconds / FORGOTTEN_S) + behind * seconds)
    return later


def mean_present(arrived_s: Floats, began_s: Floats, ended_s: Floats) -> Floats:
    """Mean number (m,) of these jobs that were there from when each began until it ended, by their arrivals.

    All are still there. A job that arrived meanwhile counts for the part of the time in which it was there.
    """
    arrivals = np.sort(arrived_s)
    sums, long_s = np.append(0, np.cumsum(arrivals)), ended_s - began_s
    first, last = (np.searchsorted(arrivals, times, side="right") for times in (began_s, ended_s))
    later_s = (last - first) * ended_s - (sums[last] - sums[first])
    later = np.divide(later_s, long_s, out=np.zeros(len(long_s)), where=long_s > 0)
    mean: Floats = np.maximum(first + later, 1)
    return mean
