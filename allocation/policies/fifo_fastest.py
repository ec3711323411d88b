"""First in, first out, each on the fastest GPUs that are left (Gavel's `fifo_perf`)."""

from numpy import argsort

from allocation.decision import Decision
from allocation.problem import Problem
from allocation.queues import fastest, serve


def fifo_fastest(problem: Problem) -> Decision:
    r"""Run jobs in the order in which they came, each on the fastest GPUs that those before it leave.

    Choose it when whoever came first is to be served best, at the price of moving jobs whenever better GPUs come free.

    Every round begins anew with the oldest job; only locked jobs keep what they hold. With the GPUs then left,

    .. math::
        k_i = \operatorname*{arg\,max}_{k:\ u_{\cdot k} \le \text{left}} T_{ik}

    The first job that fits nowhere stops the queue; but not where GPUs are left for his gang and he cannot use them.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) steps/s; u = usage (n, K) GPUs; c = capacity (n,) GPUs; age_s (m,); locked (m,), held (m,).

    Returns
    -------
    Decision
        picks (m,); objective: jobs that run; prices are 0; reasons as those of `fifo`.

    References
    ----------
    .. [1] Narayanan et al., OSDI 2020, "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
       section 7.1 (the FIFO baseline, heterogeneity-aware).
    """
    oldest_first = argsort(-problem.age_s, kind="stable")
    return serve(problem, oldest_first, fastest(problem), keep=problem.locked, strict=True, passable=True)
