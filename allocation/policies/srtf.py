"""Shortest remaining time first."""

from numpy import isfinite, lexsort, where

from allocation.decision import Decision
from allocation.problem import Problem
from allocation.solvers.greedy_queue import fastest, serve


def srtf(problem: Problem) -> Decision:
    r"""Run the jobs with the shortest remaining time first, each on the fastest GPUs left.

    Choose it when only the mean completion time counts and jobs declare their remaining steps; long jobs
    starve while short ones keep arriving.

    In the order of the remaining time on a job's best GPUs; jobs of unknown length follow, by age:

    .. math::
        t_i = \frac{r_i}{\max_k T_{ik}}, \qquad
        k_i = \operatorname*{arg\,max}_{k:\ u_{\cdot k} \le \text{left}} T_{ik}

    A job that does not fit is skipped. Locked jobs keep what they hold.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) steps/s; r = remaining_steps (m,); u = usage (n, K) GPUs; c = capacity (n,) GPUs; age_s (m,).

    Returns
    -------
    Decision
        assignment (m,); objective: jobs that run; prices are 0; for each job left the reason `outbid`, with the last
        job that was served before it.

    References
    ----------
    .. [1] Schrage, Operations Research 1968, "A Proof of the Optimality of the Shortest Remaining Processing Time
       Discipline" (one server; a heuristic on several).
    """
    left_s = problem.remaining_steps / problem.rate.max(axis=1)
    turn = lexsort((-problem.age_s, where(isfinite(left_s), left_s, 0), ~isfinite(left_s)))
    return serve(problem, turn, fastest(problem), keep=problem.locked, strict=False)
