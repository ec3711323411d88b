"""Isolated baseline: an equal part of every GPU type for each job (Gavel)."""

from numpy import arange, where, zeros_like

from allocation.decision import Decision, Status
from allocation.problem import Problem
from allocation.types import Floats


def isolated(problem: Problem) -> Decision:
    r"""Split every GPU type evenly between the jobs, as if each had a cluster of its own.

    Choose it as the baseline with which sharing is compared.

    .. math::
        X_{i,k_0(i,j)} = \frac{y_{ij}}{\max(1, \sum_j y_{ij})}, \qquad y_{ij} = \frac{c_j}{m\, g_i}

    k0(i, j) is job i's smallest gang on type j. GPUs that a job cannot use, or has no time for, are lost to it;
    the round mechanism lends them to other jobs.

    Parameters
    ----------
    problem : Problem
        u = usage (n, K) GPUs, c = capacity (n,) GPUs, g = base_gpus (m,), T = rate (m, K) steps/s.

    Returns
    -------
    Decision
        shares X (m, K), fraction of time; prices are 0; objective: the normalised rate of the worst-off job.

    References
    ----------
    .. [1] Narayanan et al., OSDI 2020, "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
       section 7.1.
    """
    T, c, g = problem.rate, problem.capacity, problem.base_gpus
    y = c / (len(g) * g[:, None])
    X = on_base_gangs(problem, y / where(y.sum(axis=1) > 1, y.sum(axis=1), 1)[:, None])
    worst = (g / (problem.weight * problem.base_rate) * (T * X).sum(axis=1)).min()
    return Decision.of_shares(X, prices=zeros_like(c), objective=worst, status=Status.RULE, dust=0)


def on_base_gangs(problem: Problem, y: Floats) -> Floats:
    """Shares (m, K) from shares of types (m, n), each in the job's fastest configuration of the fewest GPUs there."""
    X, rows = zeros_like(problem.rate), arange(len(y))
    for j, used in enumerate(problem.usage):
        smallest = (problem.rate > 0) & (used == problem.gpus) & (problem.gpus == problem.base_gpus[:, None])
        k0 = where(smallest, problem.rate, 0).argmax(axis=1)
        X[rows, k0] += where(smallest.any(axis=1), y[:, j], 0)
    return X
