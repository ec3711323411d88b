"""Max-min fairness of GPU time, blind to the types of GPUs (Gavel's `max_min_fairness`)."""

from numpy import where

from allocation.deadline import Deadline
from allocation.decision import Decision
from allocation.levels import fill_evenly
from allocation.problem import Problem, normaliser


def max_min_fairness_agnostic(problem: Problem) -> Decision:
    r"""Give everybody an equal part of the GPUs' time by weight, whatever the GPUs.

    Choose it as the baseline that `max_min_fairness` is to be measured against, or where one GPU is as good as another.

    It is `max_min_fairness` with the GPUs of a configuration in place of its rate:

    .. math::
        T_{ik} := \frac{\sum_j u_{jk}}{g_i}\,[T_{ik} > 0]

    Gavel sets every rate to 1, also where a job cannot run; shares that are worth nothing are not handed out here.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K), read for its zeros only; u = usage (n, K) GPUs, c = capacity (n,) GPUs, w = weight (m,),
        g = base_gpus (m,).

    Returns
    -------
    Decision
        shares X (m, K), fraction of time; prices (n,), what one more GPU adds to the level of those whom capacity stops
        first; objective z, in units of GPU time.

    Raises
    ------
    SolverFailed
        The solver stopped early. Infeasible cannot happen: X = 0, z = 0 is feasible.

    References
    ----------
    .. [1] Narayanan et al., OSDI 2020, "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
       section 7.1 (the LAS baseline, heterogeneity-agnostic).
    """
    u, c, w = problem.usage, problem.capacity, problem.weight
    T = where(problem.rate > 0, problem.gpus, 0) / problem.base_gpus[:, None]
    g, p = normaliser(T, u, c)
    a = T * (g / (w * p))[:, None]
    best = fill_evenly(a, u, c, deadline=Deadline.of(problem))
    return best.decision
