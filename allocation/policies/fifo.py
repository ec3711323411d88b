"""First in, first out."""

from numpy import argsort

from allocation.decision import Decision
from allocation.problem import Problem
from allocation.solvers.greedy_queue import holds_something, roomiest, serve


def fifo(problem: Problem) -> Decision:
    r"""Run jobs in the order of submission, regardless of speed; no job is preempted.

    Choose it when nothing is known about the jobs and a transparent queue counts more than speed.

    A running job keeps its GPUs. The waiting jobs follow, the oldest first; on the GPUs then left,

    .. math::
        k_i = \operatorname*{arg\,lexmin}_{k:\ T_{ik} > 0,\ u_{\cdot k} \le \text{left}}
              \left(-\text{left}_{j(k)},\ j(k),\ \textstyle\sum_j u_{jk}\right)

    the smallest gang on the type with the most GPUs left, j(k) being the type of most of k's GPUs. The first job
    that fits nowhere stops the queue.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K), read for its zeros only; u = usage (n, K) GPUs; c = capacity (n,) GPUs; age_s (m,); held (m,).

    Returns
    -------
    Decision
        assignment (m,); objective: jobs that run; prices are 0, as a queue has none; for each job behind the one that
        stops the queue, the reason `outbid` with that row as its rival.
    """
    oldest_first = argsort(-problem.age_s, kind="stable")
    return serve(problem, oldest_first, roomiest(problem), keep=holds_something(problem), strict=True)
