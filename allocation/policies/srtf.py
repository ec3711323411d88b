"""Shortest remaining time first."""

from numpy import isfinite, lexsort, where

from allocation.decision import Decision
from allocation.problem import Problem
from allocation.queues import fastest, serve


def srtf(problem: Problem) -> Decision:
    r"""Run the jobs that will be done soonest, each on the fastest GPUs that those before it leave.

    Choose it when the mean completion time is all that counts and jobs say how many steps they have left; long jobs
    starve while short ones keep coming.

    In the order of the time left on a job's best GPUs, and where that is unknown, after all others, by age:

    .. math::
        t_i = \frac{r_i}{\max_k T_{ik}}, \qquad
        k_i = \operatorname*{arg\,max}_{k:\ u_{\cdot k} \le \text{left}} T_{ik}

    A job that does not fit is passed over. Locked jobs keep what they hold.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) steps/s; r = remaining_steps (m,); u = usage (n, K) GPUs; c = capacity (n,) GPUs; age_s (m,).

    Returns
    -------
    Decision
        picks (m,); objective: jobs that run; prices are 0; for each job left the reason `outbid`, with the last job
        that was served before it.

    References
    ----------
    .. [1] Schrage, Operations Research 1968, "A Proof of the Optimality of the Shortest Remaining Processing Time
       Discipline" (one server; a heuristic on several).
    """
    left_s = problem.remaining_steps / problem.rate.max(axis=1)
    turn = lexsort((-problem.age_s, where(isfinite(left_s), left_s, 0), ~isfinite(left_s)))
    return serve(problem, turn, fastest(problem), keep=problem.locked, strict=False)
