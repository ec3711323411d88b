"""The least average completion time, restarts counted (our own)."""

from typing import Annotated

from numpy import arange, inf, isfinite, maximum, minimum, where

from allocation.arrays import Floats
from allocation.decision import Decision
from allocation.gain import most_gain
from allocation.parameters import Within
from allocation.problem import Problem

LEAST_S = 1.0
"""No job is nearer to its end than that: its weight stays finite."""


def motley(
    problem: Problem,
    *,
    short_first: Annotated[
        float, Within(0, 1, "how much more a job counts the less of it is left; 0: all count alike")
    ] = 0.2,
    horizon_s: Annotated[
        float, Within(60, 86_400, "seconds for which a choice is taken to last: a restart is spread over them")
    ] = 900.0,
    begin: Annotated[
        float, Within(0, 10, "what it is worth to run at all, where 1 is what all speed beyond that is worth")
    ] = 1.0,
    scale_up: Annotated[
        float, Within(0, 1024, "at most so many times the GPUs that jobs of its workload ever had; 0: no limit")
    ] = 0.0,
    gap: Annotated[float, Within(0, 0.5, "how far from the best the answer may be, relatively")] = 1e-3,
    time_limit_s: Annotated[float, Within(0.01, 600, "seconds after which the answer by prices counts")] = 20.0,
) -> Decision:
    r"""Save jobs as much of their time to come as the GPUs can, and move nobody who would lose more than he gains.

    Choose it when jobs are elastic, say how much work they are, and are to be done soon on average. A job starts in the
    size that suits it, where its workload is known; it waits for another to grow only if it is far longer than that.

    .. math::
        \max_{X \in \{0,1\}}\ \textstyle\sum_i w_i \left(\frac{r_i}{1\,\mathrm{h}}\right)^{-q} \sum_k (a + v_{ik})
        X_{ik} \quad\text{s.t.}\quad
        & \textstyle \sum_k X_{ik} \le 1                      && \forall i \quad\text{(one configuration)} \\
        & \textstyle \sum_i \sum_k u_{jk} X_{ik} \le c_j      && \forall j \quad\text{(capacity)}

    A second in configuration k saves job i the seconds that it would take for the same steps at its best; a restart
    loses its part of the time until the job is done or the horizon H is reached:

    .. math::
        r_i = \frac{S_i}{\max_k T_{ik}}, \qquad
        v_{ik} = \frac{T_{ik}}{\max_k T_{ik}} \left(1 - \frac{R_{ik}}{\min(H,\ R_{ik} + S_i / T_{ik})}\right), \qquad
        R_{ik} = \begin{cases} 0 & k \text{ is held} \\ R_i & \text{else} \end{cases}

    A job that does not say how much is left of it is expected to run once more as long as it has, and as the horizon.
    A locked job keeps what it holds, and of equals who runs goes on. Where rates are guesses, `scale_up` limits how
    many times the GPUs a job may get that jobs of its workload ever had.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) goodput, u = usage (n, K) GPUs, c = capacity (n,) GPUs, w = weight (m,), held, locked (m,),
        S = remaining_steps (m,), R = restart_s (m,) seconds, attained_gpu_s, base_gpus (m,), most_gpus (m,) that jobs
        of its workload ever had.
    short_first, begin, horizon_s : q, a and H.
    scale_up, gap, time_limit_s : as said there.

    Returns
    -------
    Decision
        picks (m,); objective and bound as in the formula; prices (n,) and worth (m, K) in its unit: what a GPU, or a
        configuration, adds to the sum. Where `time_limit_s` or the round's time limit comes before the gap is reached,
        the feasible answer by prices, with the status `limit`.

    References
    ----------
    .. [1] Subramanya et al., SOSP 2023, "Sia: Heterogeneity-aware, goodput-optimized ML-cluster scheduling",
       section 3.4 (the program; other values).
    .. [2] Berg, Vesilo and Harchol-Balter, Performance Evaluation 2020, "heSRPT: Parallel scheduling to minimize mean
       slowdown" (why short jobs first, and not alone).
    """
    T, w, held = problem.rate, problem.weight, problem.held
    best = T.max(axis=1)
    r = maximum(_left_s(problem, best, horizon_s), LEAST_S)
    stays = arange(T.shape[1]) == held[:, None]
    v = (T / best[:, None]) * (1 - _lost(problem, r * best, stays, horizon_s))
    gain = (w * (r / 3600) ** -short_first)[:, None] * (begin + v)
    return most_gain(problem, gain, scale_up=scale_up, gap=gap, time_limit_s=time_limit_s)


def _left_s(problem: Problem, best: Floats, horizon_s: float) -> Floats:
    """r (m,), seconds left at the best rate (m,)."""
    so_far = problem.attained_gpu_s / problem.base_gpus
    left: Floats = where(isfinite(problem.remaining_steps), problem.remaining_steps / best, so_far + horizon_s)
    return left


def _lost(problem: Problem, steps: Floats, stays: Floats, horizon_s: float) -> Floats:
    """The part (m, K) of the time to come that a restart takes, with so many steps (m,) to do."""
    R = where(stays, 0, problem.restart_s[:, None])
    alone_s = where(problem.rate > 0, steps[:, None] / where(problem.rate > 0, problem.rate, 1), inf)
    part: Floats = minimum(R / minimum(horizon_s, R + alone_s), 1)
    return part
