"""First in, first out, each job on the fastest GPUs left (Gavel's `fifo_perf`)."""

from numpy import argsort

from allocation.decision import Decision
from allocation.problem import Problem
from allocation.solvers.greedy_queue import fastest, serve


def fifo_fastest(problem: Problem) -> Decision:
    r"""Run jobs in the order of submission, each on the fastest GPUs that earlier jobs leave.

    Choose it when the oldest jobs should be served best, at the cost of moving jobs whenever faster GPUs become free.

    Every round starts with the oldest job; only locked jobs keep their GPUs. On the GPUs then left,

    .. math::
        k_i = \operatorname*{arg\,max}_{k:\ u_{\cdot k} \le \text{left}} T_{ik}

    The first job that fits nowhere stops the queue, unless enough GPUs are left for its gang that it cannot use.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) steps/s; u = usage (n, K) GPUs; c = capacity (n,) GPUs; age_s (m,); locked (m,), held (m,).

    Returns
    -------
    Decision
        assignment (m,); objective: jobs that run; prices are 0; reasons as with `fifo`.

    References
    ----------
    .. [1] Narayanan et al., OSDI 2020, "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
       section 7.1 (the FIFO baseline, heterogeneity-aware).
    """
    oldest_first = argsort(-problem.age_s, kind="stable")
    return serve(problem, oldest_first, fastest(problem), keep=problem.locked, strict=True, passable=True)
