"""Minimum mean completion time by bipartite matching (AlloX)."""

from dataclasses import replace
from typing import Annotated

import scipy
from numpy import (
    arange,
    argsort,
    cbrt,
    concatenate,
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
    sqrt,
    unique,
    where,
    zeros_like,
)

from allocation.decision import Decision, Status
from allocation.policies._shared import base_gangs, on_base_gangs, steps_left
from allocation.policies.parameters import Range
from allocation.problem import Problem
from allocation.solvers.greedy_queue import fastest, holds_something, serve
from allocation.types import Bools, Floats, Ints

MOST_CELLS = 4_000_000
"""Most entries of the matching's cost matrix; beyond it, later positions and then the youngest jobs are left out."""
STEPS_PER_S = 1e9
"""Square of the jobs times the places, of a matching that takes a second: half of what a slow core does."""
LEAST_S = 0.1
"""Shortest time, in seconds, that a matching is sized for; a decision of a forecast has less."""
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
        \min\ \textstyle\sum_{i,s,p} p\, \frac{g_{i,j(s)}\, r_i}{T_{i,k_0(i,j(s))}}\, x_{isp}
        \quad\text{s.t.}\quad
        & \textstyle\sum_{s,p} x_{isp} = 1   && \forall i \quad\text{(each job once)} \\
        & \textstyle\sum_i x_{isp} \le 1     && \forall s, p \quad\text{(one job at a time)}

    The first job on each GPU starts now; of jobs with equal work, the oldest first. AlloX has jobs of one GPU only; a
    gang is matched by its work in GPU-seconds, and starts when enough GPUs of the type are left. Only jobs that run on
    a type with a free GPU take part. Of a long queue, or in a short time limit, the oldest of these are matched; the
    others start on the free type on which they are fastest, on GPUs that those leave.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) steps/s, r = remaining_steps (m,), where unknown that of the longest;
        g = GPUs (m, n) of the smallest gang, u = usage (n, K), c = capacity (n,) GPUs; held, age_s (m,);
        solve_limit_s.
    oldest : AlloX' alpha.

    Returns
    -------
    Decision
        assignment (m,); objective: jobs that run; prices are 0; status `limit` where the time limit made the matching
        smaller.

    References
    ----------
    .. [1] Le et al., EuroSys 2020, "AlloX: Compute Allocation in Hybrid Clusters", section 4.
    """
    keep = holds_something(problem)
    left = maximum(problem.capacity - problem.usage[:, problem.held[keep]].sum(axis=1), 0)
    gangs = on_base_gangs(problem, ones_like(problem.received_s)) > 0
    work = where(left > 0, _gpu_seconds(problem, gangs), inf)
    by_age = lexsort((-problem.age_s, keep))[: (~keep).sum()]
    able = by_age[isfinite(work[by_age]).any(axis=1)]
    rows = able[: max(int(oldest * len(keep)), int(left.sum()))]
    turn, gpu_type = _matched(work[rows], left, limit_s=problem.solve_limit_s)
    mine = zeros_like(gangs)
    mine[rows[turn]] = gangs[rows[turn]] & (problem.usage[gpu_type] > 0)
    decision = serve(problem, rows[turn], fastest(problem), keep=keep, strict=False, allowed=mine)
    return _with_status(decision, len(rows), int(left.sum()), limit_s=problem.solve_limit_s)


def _gpu_seconds(problem: Problem, gangs: Bools) -> Floats:
    """Work (m, n) in GPU-seconds of each job's smallest gang on each type; inf where it has none."""
    rate = where(gangs, problem.rate, 0) @ (problem.usage > 0).T
    work = base_gangs(problem) * steps_left(problem)[:, None]
    seconds: Floats = divide(work, rate, out=full(rate.shape, inf), where=rate > 0)
    return seconds


def _matched(work: Floats, left: Ints, *, limit_s: float) -> tuple[Ints, Ints]:
    """Jobs in the order of their starts and the GPU type of each, from their work (m, n), the oldest job first.

    Each has work on a type with free GPUs, and none on others.
    """
    m, places = _size(len(work), int(left.sum()), limit_s=limit_s)
    on_type = repeat(arange(left.size), left)
    position = arange(1, 1 + places)[:, None]
    cost = position * minimum(work[:m, on_type], NEVER_S)[:, None, :]
    i, column = scipy.optimize.linear_sum_assignment(cost.reshape(m, places * on_type.size))
    place, gpu = divmod(column, max(on_type.size, 1))
    turn = _first_ones_first(place, gpu)
    turn = turn[isfinite(work[i, on_type[gpu]])[turn]]
    jobs, types = _oldest_first(i[turn], work), on_type[gpu[turn]]
    return concatenate([jobs, arange(m, len(work))]), concatenate([types, work[m:].argmin(axis=1)])


def _with_status(decision: Decision, jobs: int, gpus: int, *, limit_s: float) -> Decision:
    """The decision, with status and message where the time limit made the matching of so many jobs smaller."""
    m, places = _size(jobs, gpus, limit_s=limit_s)
    if (m, places) == _size(jobs, gpus, limit_s=inf):
        return decision
    said = f"In the time limit the oldest {m:,} of {jobs:,} jobs that could start were matched, {places:,} to a GPU."
    return replace(decision, status=Status.LIMIT, message=said)


def _size(jobs: int, gpus: int, *, limit_s: float) -> tuple[int, int]:
    """Number of jobs to match, at most one for each place, and the number of places on each GPU."""
    steps, gpus = STEPS_PER_S * maximum(limit_s, LEAST_S), max(gpus, 1)
    m = int(min(jobs, sqrt(MOST_CELLS), MOST_CELLS / gpus, cbrt(steps), sqrt(steps / gpus)))
    each = max(m, 1) * gpus
    places = max(int(min(m, MOST_CELLS / each, steps / (max(m, 1) * each))), 1)
    return min(m, places * gpus), places


def _first_ones_first(place: Ints, gpu: Ints) -> Ints:
    """Order of the matches by start: the first job on each GPU before all others."""
    turn = lexsort((arange(len(gpu)), -place, gpu))
    later = diff(gpu[turn], prepend=-1) == 0
    order: Ints = turn[lexsort((-place[turn], later))]
    return order


def _oldest_first(turn: Ints, work: Floats) -> Ints:
    """The same order, with jobs of equal work exchanged so that the oldest starts first."""
    kind = unique(work[turn], axis=0, return_inverse=True)[1].ravel()
    jobs = zeros_like(turn)
    jobs[argsort(kind, kind="stable")] = turn[lexsort((turn, kind))]
    return jobs
