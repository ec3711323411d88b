"""Isolated baseline: an equal part of every GPU type for each job (Gavel)."""

from numpy import where

from allocation.decision import Decision
from allocation.policies._shared import base_gangs, decision_by_rule, on_base_gangs
from allocation.problem import Problem


def isolated(problem: Problem) -> Decision:
    r"""Split every GPU type evenly between the jobs, as if each had a cluster of its own.

    Choose it as the baseline with which sharing is compared.

    .. math::
        X_{i,k_0(i,j)} = \frac{y_{ij}}{\max(1, \sum_j y_{ij})}, \qquad y_{ij} = \frac{c_j}{m\, g_{ij}}

    k0(i, j) is job i's smallest gang on type j, of g GPUs. GPUs that a job cannot use, or has no time for, are lost to
    it; the round mechanism lends them to other jobs.

    Parameters
    ----------
    problem : Problem
        u = usage (n, K) GPUs, c = capacity (n,) GPUs, g = GPUs (m, n) of the smallest gang, T = rate (m, K) steps/s.

    Returns
    -------
    Decision
        shares X (m, K), fraction of time; prices are 0; objective: the normalised rate of the worst-off job.

    References
    ----------
    .. [1] Narayanan et al., OSDI 2020, "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
       section 7.1.
    """
    c, g = problem.capacity, base_gangs(problem)
    y = c / (len(g) * g)
    X = on_base_gangs(problem, y / where(y.sum(axis=1) > 1, y.sum(axis=1), 1)[:, None])
    return decision_by_rule(problem, X)
