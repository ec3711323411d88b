"""Least attained service, in discrete queues (Tiresias)."""

from typing import Annotated

from numpy import lexsort, maximum, searchsorted, where

from allocation.decision import Decision
from allocation.parameters import Within
from allocation.problem import Problem
from allocation.queues import roomiest, serve

PER_QUEUE = 2.25
"""Each queue is so many times as long as the one before: with the first limit, near Tiresias' 3250, 7200, 18000."""


def las(
    problem: Problem,
    *,
    first_limit_gpu_s: Annotated[
        float, Within(1, 1e9, "GPU-seconds after which a job leaves the first queue")
    ] = 3250.0,
    queues: Annotated[int, Within(1, 16, "how many queues there are")] = 4,
    promote: Annotated[
        float, Within(0, 1e6, "a job that waited so many times as long as it ran is back in the first queue; 0: never")
    ] = 8.0,
) -> Decision:
    r"""Run the jobs that have had least service so far, counted in GPU-seconds and in coarse steps.

    Choose it when lengths are unknown and short jobs are to be done quickly; jobs are stopped seldom, for only one of a
    lower queue gives way.

    With S the service, L the limits of the queues, W and E the time waited and executed, queue by queue and in each of
    them those that run first, then by age:

    .. math::
        q_i = \begin{cases} 0 & W_i \ge \text{promote} \cdot E_i > 0 \\ |\{l : L_l \le S_i\}| & \text{else} \end{cases},
        \qquad L_l = L_0 \cdot 2.25^{\,l}

    Each gets what it holds, or its smallest gang of the type with most GPUs left. Who does not fit is passed over.

    Parameters
    ----------
    problem : Problem
        S = attained_gpu_s (m,) GPU-seconds; age_s (m,); held (m,); base_gpus (m,), by which time executed is reckoned;
        rate (m, K), read for its zeros only; usage (n, K), capacity (n,) GPUs.
    first_limit_gpu_s, queues, promote : L_0, the number of queues, and Tiresias' promotion knob.

    Returns
    -------
    Decision
        picks (m,); objective: jobs that run; prices are 0; for each job left the reason `outbid`, with the last job
        that was served before it.

    References
    ----------
    .. [1] Gu et al., NSDI 2019, "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", section 3.2
       (discretised two-dimensional LAS).
    """
    S, age_s, runs = problem.attained_gpu_s, problem.age_s, problem.held >= 0
    limits = first_limit_gpu_s * PER_QUEUE ** maximum(0, range(queues - 1))
    executed_s = S / problem.base_gpus
    promoted = (promote > 0) & (S > 0) & (age_s - executed_s >= promote * executed_s)
    queue = where(promoted, 0, searchsorted(limits, S, side="right"))
    turn = lexsort((-age_s, ~runs, queue))
    return serve(problem, turn, roomiest(problem), keep=problem.locked, strict=False)
