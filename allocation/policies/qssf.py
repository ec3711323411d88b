"""Quasi-shortest-service-first: the job with the least predicted GPU time starts next (Helios)."""

from numpy import isfinite, lexsort, where

from allocation.decision import Decision
from allocation.problem import Problem
from allocation.solvers.greedy_queue import fastest, holds_something, serve


def qssf(problem: Problem) -> Decision:
    r"""Start the job with the least predicted GPU time first, in a queue for each team; no job is preempted.

    Choose it when jobs must not be stopped once they run, and short ones should not wait behind long ones; their
    lengths need not be declared, since those of earlier jobs tell them well enough. Long jobs starve while shorter
    ones of their team keep arriving.

    A running job keeps its GPUs. The waiting jobs follow in the order of the GPU time that is left of each on its
    smallest gang of average GPUs, those of unknown length last, small gangs first; each gets the fastest GPUs left:

    .. math::
        P_i = g_i \, \frac{r_i}{p_i}, \qquad
        k_i = \operatorname*{arg\,max}_{k:\ \sum_j u_{jk} = g_{ij(k)},\ u_{\cdot k} \le \text{left}} T_{ik}

    where g_ij is the smallest gang on type j. The first job of a team that fits nowhere stops the queue of that team,
    so that GPUs gather for a large gang.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) steps/s; r = remaining_steps (m,), declared or estimated from jobs that ended before; g =
        base_gpus (m,), p = base_rate (m,) steps/s; u = usage (n, K) GPUs; c = capacity (n,) GPUs; held, team, age_s
        (m,).

    Returns
    -------
    Decision
        assignment (m,); objective: jobs that run; prices are 0, as a queue has none; for each job left the reason
        `outbid`, with the job that stops its team's queue, or the last one that was served before it.

    References
    ----------
    .. [1] Hu et al., SC 2021, "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU
       Datacenters", section 4.2.
    """
    g, p, r = problem.base_gpus, problem.base_rate, problem.remaining_steps
    P = g * r / p
    turn = lexsort((-problem.age_s, g, where(isfinite(P), P, 0), ~isfinite(P)))
    smallest = (problem.rate > 0) & (problem.replicas == problem.base_replicas[:, None])
    keep = holds_something(problem)
    return serve(problem, turn, fastest(problem), keep=keep, strict=True, allowed=smallest, queue=problem.team)
