"""First in, first out."""

from time import perf_counter

import numpy as np

from allocation.arrays import Ints
from allocation.decision import Decision
from allocation.problem import Problem
from allocation.reasons import Reason, ReasonCode


def fifo(problem: Problem) -> Decision:
    r"""Run jobs in the order in which they came, blind to speed.

    Choose it when people expect a queue, and every job may wait for those before it: nothing is stopped for another,
    and neither speed nor weights count.

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
    began = perf_counter()
    T, u, c = problem.rate, problem.usage, problem.capacity
    keeps = (problem.held >= 0) & (np.take_along_axis(T, problem.held[:, None], axis=1)[:, 0] > 0)
    picks = np.where(keeps, problem.held, -1)
    left = c - u[:, picks[keeps]].sum(axis=1)
    oldest_first = np.argsort(-problem.age_s, kind="stable")
    queue = oldest_first[~keeps[oldest_first]]
    ahead = 0
    for ahead, i in enumerate(queue, start=1):  # noqa: B007  # how far the queue got is read below
        picks[i] = _roomiest(np.flatnonzero(T[i] > 0), u, left)
        if picks[i] < 0:
            break
        left = left - u[:, picks[i]]
    outbid = {i: (Reason(ReasonCode.OUTBID, rival=int(queue[ahead - 1])),) for i in queue[ahead:].tolist()}
    return Decision.of_picks(
        picks,
        prices=np.zeros(c.size),
        objective=float((picks >= 0).sum()),
        solve_seconds=perf_counter() - began,
        reasons=outbid,
    )


def _roomiest(valid: Ints, u: Ints, left: Ints) -> int:
    fits = valid[(u[:, valid] <= left[:, None]).all(axis=0)]
    if not fits.size:
        return -1
    gpu_type = u[:, fits].argmax(axis=0)
    return int(fits[np.lexsort((u[:, fits].sum(axis=0), gpu_type, -left[gpu_type]))[0]])
