"""Least attained service, in discrete queues (Tiresias)."""

from typing import Annotated

from numpy import lexsort, maximum, searchsorted, where

from allocation.decision import Decision
from allocation.policies.parameters import Range
from allocation.problem import Problem
from allocation.solvers.greedy_queue import roomiest, serve

PER_QUEUE = 2.25
"""Ratio of consecutive queue limits; with the first limit close to Tiresias' 3250, 7200, 18000."""


def las(
    problem: Problem,
    *,
    first_limit_gpu_s: Annotated[float, Range(1, 1e9, "GPU-seconds after which a job leaves the first queue")] = 3250.0,
    queues: Annotated[int, Range(1, 16, "number of queues")] = 4,
    promote: Annotated[
        float,
        Range(0, 1e6, "a job that waited this many times as long as it ran returns to the first queue; 0: never"),
    ] = 8.0,
) -> Decision:
    r"""Run the jobs with the least attained service, in GPU-seconds and coarse steps.

    Choose it when lengths are unknown and short jobs should finish quickly; preemptions are rare, as only a job of a
    lower queue is preempted.

    With S the service, L the limits of the queues, W and E the time waited and executed, queue by queue and in each of
    them those that run first, then by age:

    .. math::
        q_i = \begin{cases} 0 & W_i \ge \text{promote} \cdot E_i > 0 \\ |\{l : L_l \le S_i\}| & \text{else} \end{cases},
        \qquad L_l = L_0 \cdot 2.25^{\,l}

    Each gets what it holds, or its smallest gang on the type with the most GPUs left. A job that does
    not fit is skipped.

    Parameters
    ----------
    problem : Problem
        S = attained_gpu_s (m,) GPU-seconds; age_s (m,); held (m,); base_gpus (m,), by which time executed is reckoned;
        rate (m, K), read for its zeros only; usage (n, K), capacity (n,) GPUs.
    first_limit_gpu_s, queues, promote : L_0, the number of queues, and Tiresias' promotion knob.

    Returns
    -------
    Decision
        assignment (m,); objective: jobs that run; prices are 0; for each job left the reason `outbid`, with the last
        job that was served before it.

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
