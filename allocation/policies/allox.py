"""Minimum mean completion time by bipartite matching (AlloX)."""

from typing import Annotated

import scipy
from numpy import (
    arange,
    diff,
    divide,
    full,
    inf,
    isfinite,
    lexsort,
    maximum,
    minimum,
    ones_like,
    repeat,
    where,
    zeros_like,
)

from allocation.decision import Decision
from allocation.policies._shared import base_gangs, on_base_gangs, steps_left
from allocation.policies.parameters import Range
from allocation.problem import Problem
from allocation.solvers.greedy_queue import fastest, holds_something, serve
from allocation.types import Bools, Floats, Ints

MOST_CELLS = 4_000_000
"""Most entries of the matching's cost matrix; beyond it, later positions and then the youngest jobs are dropped."""
NEVER_S = 1e12


def allox(
    problem: Problem,
    *,
    oldest: Annotated[
        float, Range(0, 1, "fraction of the jobs, the oldest first, that is matched; lower is fairer")
    ] = 1.0,
) -> Decision:
    r"""Run jobs in the order and on the GPUs that minimise the mean completion time.

    Choose it when mean completion time counts, job lengths are known, and some jobs gain much more from fast GPUs than
    others. No job is preempted.

    Jobs that run stay. The others are matched to pairs of a free GPU and a position p from the end of its queue:

    .. math::
        \min\ \textstyle\sum_{i,s,p} \left(p\, \frac{g_{i,j(s)}\, r_i}{T_{i,k_0(i,j(s))}} + t_i\right) x_{isp}
        \quad\text{s.t.}\quad
        & \textstyle\sum_{s,p} x_{isp} = 1   && \forall i \quad\text{(each job once)} \\
        & \textstyle\sum_i x_{isp} \le 1     && \forall s, p \quad\text{(one job at a time)}

    The first job on each GPU starts now. AlloX has jobs of one GPU only; a gang is matched by its work in GPU-seconds,
    and starts when enough GPUs of the type are left.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) steps/s, r = remaining_steps (m,), where unknown that of the longest; t = age_s (m,);
        g = GPUs (m, n) of the smallest gang, u = usage (n, K), c = capacity (n,) GPUs; held (m,).
    oldest : AlloX' alpha.

    Returns
    -------
    Decision
        assignment (m,); objective: jobs that run; prices are 0.

    References
    ----------
    .. [1] Le et al., EuroSys 2020, "AlloX: Compute Allocation in Hybrid Clusters", section 4.
    """
    keep = holds_something(problem)
    left = maximum(problem.capacity - problem.usage[:, problem.held[keep]].sum(axis=1), 0)
    by_age = lexsort((-problem.age_s, keep))[: (~keep).sum()]
    rows = by_age[: max(int(oldest * len(keep)), int(left.sum()))]
    gangs = on_base_gangs(problem, ones_like(problem.received_s)) > 0
    rows, gpu_type = _matched(_gpu_seconds(problem, gangs)[rows], problem.age_s[rows], left, rows)
    mine = zeros_like(gangs)
    mine[rows] = gangs[rows] & (problem.usage[gpu_type] > 0)
    return serve(problem, rows, fastest(problem), keep=keep, strict=False, allowed=mine)


def _gpu_seconds(problem: Problem, gangs: Bools) -> Floats:
    """Work (m, n) in GPU-seconds of each job's smallest gang on each type; inf where it has none."""
    rate = where(gangs, problem.rate, 0) @ (problem.usage > 0).T
    work = base_gangs(problem) * steps_left(problem)[:, None]
    seconds: Floats = divide(work, rate, out=full(rate.shape, inf), where=rate > 0)
    return seconds


def _matched(work: Floats, age_s: Floats, left: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Rows in the order of their starts, the first on each GPU before all others, and the GPU type of each."""
    gpu_type = repeat(arange(left.size), left)
    m = min(len(rows), MOST_CELLS // max(gpu_type.size, 1))
    places = arange(1, 1 + max(min(m, MOST_CELLS // max(m * gpu_type.size, 1)), 1))
    on_gpu = minimum(work[:m, gpu_type], NEVER_S)
    cost = (places[:, None] * on_gpu[:, None, :] + age_s[:m, None, None]).reshape(m, places.size * gpu_type.size)
    i, column = scipy.optimize.linear_sum_assignment(cost)
    place, gpu = divmod(column, max(gpu_type.size, 1))
    turn = lexsort((i, -place, gpu))
    later = diff(gpu[turn], prepend=-1) == 0
    turn = turn[lexsort((-place[turn], later))]
    turn = turn[isfinite(work[i, gpu_type[gpu]])[turn]]
    return rows[i[turn]], gpu_type[gpu[turn]]
