"""Shares of the cluster's mix of GPU types in proportion to weights."""

from numpy import divide, maximum, ones_like, where, zeros_like

from allocation.decision import Decision
from allocation.policies._shared import base_gangs, decision_by_rule, on_base_gangs
from allocation.problem import Problem
from allocation.types import Floats


def proportional(problem: Problem) -> Decision:
    r"""Give each job GPUs in proportion to its weight, the same fraction of every type.

    Choose it when teams paid for parts of the cluster and each should get its part of every GPU type, without trading.

    Job i runs on the cluster's mix of the types that it can use for a fraction f of its time; what a job has no time
    for goes to the other jobs, again by weight:

    .. math::
        X_{i,k_0(i,j)} = f_i\, \frac{c_j}{C_i}, \qquad f_i = \min\!\left(1, \theta\, \frac{w_i}{g_i}\right), \qquad
        \textstyle\sum_i g_i f_i = \sum_j c_j

    C_i are the GPUs of those types, and g_i those of the job's smallest gang, on average over them. Where jobs bound to
    one type would exceed it, its shares shrink to fit.

    Parameters
    ----------
    problem : Problem
        c = capacity (n,) GPUs, g = GPUs (m, n) of the smallest gang, w = weight (m,), T = rate (m, K) steps/s.

    Returns
    -------
    Decision
        shares X (m, K), fraction of time; prices are 0; objective: the normalised rate of the worst-off job.

    References
    ----------
    .. [1] Chaudhary et al., EuroSys 2020, "Balancing Efficiency and Fairness in Heterogeneous GPU Clusters for Deep
       Learning" (Gandiva_fair's tickets, before trading).
    """
    c, w, gangs = problem.capacity, problem.weight, base_gangs(problem)
    usable = on_base_gangs(problem, ones_like(problem.received_s)) @ (problem.usage > 0).T * c
    part = usable / maximum(usable.sum(axis=1, keepdims=True), 1)
    g = where(part.any(axis=1), (part * gangs).sum(axis=1), problem.base_gpus)
    f = _fill(c.sum(), g, w)
    y = f[:, None] * part
    used = (gangs * y).sum(axis=0)
    y *= divide(c, used, out=ones_like(used), where=used > c)
    return decision_by_rule(problem, on_base_gangs(problem, y))


def _fill(capacity: float, g: Floats, w: Floats) -> Floats:
    """Fraction (m,) of time that each gang of g GPUs runs if GPUs go by weight; at most 1."""
    f = zeros_like(g)
    while (rising := f < 1).any():
        theta = (capacity - g[~rising].sum()) / w[rising].sum()
        wanted = where(rising, theta * w / g, 1)
        f = where(wanted >= 1, 1.0, f)
        if not (wanted[rising] >= 1).any():
            return where(rising, wanted, 1)
    return f
