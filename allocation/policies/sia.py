"""Goodput-optimal elastic allocation (Sia)."""

from typing import Annotated

from numpy import arange, inf, maximum, minimum, take_along_axis, where

from allocation.arrays import Floats
from allocation.decision import Decision
from allocation.gain import most_gain
from allocation.parameters import Switch, Within
from allocation.problem import Problem

MOST_COST = 3000.0
"""Sia's bound on the cost of a configuration that is next to worthless."""


def sia(
    problem: Problem,
    *,
    power: Annotated[float, Within(-4, 1, "below 0 slow jobs count for more, the more so the lower it is")] = -0.5,
    waiting: Annotated[
        float, Within(1.05, 100, "what a job that gets nothing costs, where a single GPU, its slowest, costs 1")
    ] = 1.1,
    scale_up: Annotated[
        float, Within(0, 1024, "at most so many times the GPUs that jobs of its workload ever had; 0: no limit")
    ] = 2.0,
    gap: Annotated[float, Within(0, 0.5, "how far from the best the answer may be, relatively")] = 1e-3,
    time_limit_s: Annotated[float, Within(0.01, 600, "seconds after which the answer by prices counts")] = 20.0,
    rounded: Annotated[bool, Switch("round costs to 2 decimals, as the published code does")] = False,
) -> Decision:
    r"""Give each job the GPUs on which its goodput, next to what it cost to move it, adds most.

    Choose it when jobs are elastic: they grow while GPUs are free, and shrink when others come. At the published cost
    of waiting, 1.1, to grow counts for more than to let one more begin; from 1.5 on, of jobs alike, all begin first.

    .. math::
        \min_{X \in \{0,1\}}\ \textstyle\sum_i w_i \left( \sum_k A_{ik} X_{ik} + \lambda \left(1 - \sum_k X_{ik}\right)
        \right) \quad\text{s.t.}\quad
        & \textstyle \sum_k X_{ik} \le 1                      && \forall i \quad\text{(one configuration)} \\
        & \textstyle \sum_i \sum_k u_{jk} X_{ik} \le c_j      && \forall j \quad\text{(capacity)}

    with the goodput of job i in units of its least one, for the GPUs of that, and cut by what a restart costs:

    .. math::
        A_{ik} = \left( f_{ik}\, s_i\, \frac{T_{ik}}{\min_k T_{ik}} \right)^{p}, \qquad
        f_{ik} = \begin{cases} 1 & k \text{ is held, or nothing is, or } t_i < R_i \\
        \frac{\max(t_i - N_i R_i,\ 0)}{t_i + R_i} & \text{else} \end{cases}

    For p > 0 the sum is maximised, and a job that waits costs -lambda; for p = 0 only the number of jobs counts. A
    locked job keeps what it holds, and of equals who runs goes on. No job gets more than `scale_up` times the GPUs that
    jobs of its workload ever had, or its smallest gang.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) goodput, u = usage (n, K) GPUs, c = capacity (n,) GPUs, w = weight (m,), held, locked (m,),
        t = age_s (m,), N = restarts (m,), R = restart_s (m,), scale_unit (m, n) and base_gpus (m,) GPUs, which make s,
        most_gpus (m,) that jobs of its workload ever had.
    power, waiting : p and lambda.
    scale_up, gap, time_limit_s, rounded : as said there.

    Returns
    -------
    Decision
        picks (m,); objective and bound as in the formula; prices (n,) and worth (m, K) in its unit: what a GPU, or a
        configuration, takes off the sum (or, for p > 0, adds to it). Where `time_limit_s` or the round's time
        limit comes before the gap is reached, the feasible answer by prices, with the status `limit`.

    References
    ----------
    .. [1] Subramanya et al., SOSP 2023, "Sia: Heterogeneity-aware, goodput-optimized ML-cluster scheduling",
       section 3.4.
    """
    A, w = _costs(problem, power), problem.weight
    A = A.round(2) if rounded else A
    gain = w[:, None] * (waiting - A if power < 0 else waiting + A)
    idle, sign = (waiting * w.sum(), -1) if power < 0 else (-waiting * w.sum(), 1)
    return most_gain(
        problem,
        gain,
        scale_up=scale_up,
        gap=gap,
        time_limit_s=time_limit_s,
        objective=lambda gained: idle + sign * gained,
    )


def _costs(problem: Problem, power: float) -> Floats:
    """A (m, K); what a job cannot use costs most."""
    T, held = problem.rate, problem.held
    t, N, R = problem.age_s, problem.restarts, problem.restart_s
    least = where(T > 0, T, inf)
    k = least.argmin(axis=1)
    unit = take_along_axis(problem.scale_unit, problem.usage[:, k].argmax(axis=0)[:, None], axis=1)[:, 0]
    s = maximum(unit, problem.base_gpus)
    r = where(t < R, 1, maximum(t - N * R, 0) / maximum(t + R, 1e-9))
    stays = (arange(T.shape[1]) == held[:, None]) | (held < 0)[:, None]
    f = where(stays, 1, r[:, None])
    goodput = f * T * (s / least.min(axis=1))[:, None]
    cost: Floats = minimum(maximum(goodput, 1e-12) ** power, MOST_COST)
    return cost
