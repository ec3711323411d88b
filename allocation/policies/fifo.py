"""First in, first out."""

from numpy import argsort

from allocation.decision import Decision
from allocation.problem import Problem
from allocation.queues import holds_something, roomiest, serve


def fifo(problem: Problem) -> Decision:
    r"""Run jobs in the order in which they came, blind to speed; nobody is stopped.

    Choose it when nothing is known of the jobs, and a queue that everybody can see through counts more than speed.

    A job keeps what it holds. The waiting jobs follow, the oldest first; with the GPUs then left,

    .. math::
        k_i = \operatorname*{arg\,lexmin}_{k:\ T_{ik} > 0,\ u_{\cdot k} \le \text{left}}
              \left(-\text{left}_{j(k)},\ j(k),\ \textstyle\sum_j u_{jk}\right)

    the smallest gang of the type with most GPUs left, j(k) being the type that gives k most of its GPUs. The first job
    that fits nowhere stops the queue.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K), read for its zeros only; u = usage (n, K) GPUs; c = capacity (n,) GPUs; age_s (m,); held (m,).

    Returns
    -------
    Decision
        picks (m,); objective: jobs that run; prices are 0, for a queue has none; for each job behind the one that
        stops the queue, the reason `outbid` with that row as its rival.
    """
    oldest_first = argsort(-problem.age_s, kind="stable")
    return serve(problem, oldest_first, roomiest(problem), keep=holds_something(problem), strict=True)
