"""Learning in space: a few tasks of each array run first, and tell how long the others take (SLearn)."""

from typing import Annotated

from numpy import ceil, concatenate, cumsum, empty, flatnonzero, inf, isfinite, lexsort, log, maximum, select, where

from allocation.decision import Decision
from allocation.policies.parameters import Range, Switch
from allocation.problem import Problem
from allocation.solvers.greedy_queue import fastest, holds_something, serve
from allocation.types import Bools, Floats

SMALL, PILOT, MAIN, LATER = range(4)
"""Classes of the queue, each served before the next."""


def slearn(
    problem: Problem,
    *,
    pilots: Annotated[float, Range(0.0, 1.0, "most of the GPUs that pilots are given before all other tasks")] = 0.2,
    small_gpu_s: Annotated[
        float, Range(0.0, 1e9, "GPU-seconds left of an array or a job that count as small: it is served first")
    ] = 1000.0,
    growth: Annotated[
        float, Range(1.0, 1000.0, "factor between the limits of two levels of the main queue; 1: no levels")
    ] = 1.0,
    single_first: Annotated[
        bool, Switch("serve first each job of whose array nothing else is left, whatever its length, as published")
    ] = False,
) -> Decision:
    r"""Start pilots of each array first, then the array with the least GPU time left; no job is preempted.

    Choose it when most of the work is arrays and sweeps whose tasks declare no length, and what earlier jobs took says
    little of it. Large arrays wait while smaller ones of their team keep arriving; a single job counts as an array of
    one task, by its own estimate.

    A running job keeps its GPUs. The waiting jobs are served in four classes. First come those of which little is left,
    :math:`P_i \le` `small_gpu_s`, and with `single_first` all single jobs; then pilots, the oldest first, as long as
    pilots hold less than the part `pilots` of the GPUs; then the main queue by what is left, those of unknown length
    last, or by level and in it the oldest first. Pilots beyond their part and tasks whose pilots have not ended come
    last: they have GPUs that are idle otherwise.

    .. math::
        P_i = g_i \, \frac{r_i}{p_i} + o_i, \qquad
        \text{level}_i = \left\lceil \log_{\text{growth}} \frac{P_i}{\text{small}} \right\rceil

    where o_i is what is left of the other tasks of the job's array. Each gets the fastest GPUs left for its smallest
    gang. The first job of a team that fits nowhere stops the queue of that team, so that GPUs gather for a large gang.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) steps/s; r = remaining_steps (m,), declared, sampled or estimated from jobs that ended before;
        o = array_others_gpu_s (m,) GPU-seconds; pilot, unsampled (m,) bool; g = base_gpus (m,), p = base_rate (m,)
        steps/s; u = usage (n, K) GPUs; c = capacity (n,) GPUs; held, team, age_s (m,).

    Returns
    -------
    Decision
        assignment (m,); objective: jobs that run; prices are 0, as a queue has none; for each job left the reason
        `outbid`, with the job that stops its team's queue, or the last one that was served before it.

    References
    ----------
    .. [1] Jajoo et al., NSDI 2022, "A Case for Task Sampling based Learning for Cluster Job Scheduling". The weights of
       its levels, by which long arrays have a part of the slots, are left out.
    """
    keep = holds_something(problem)
    g, r, p = problem.base_gpus, problem.remaining_steps, problem.base_rate
    P = g * r / p + problem.array_others_gpu_s
    within = _pilots_within(problem, keep, part=pilots)
    sampled = ~problem.unsampled & ~problem.pilot
    small = (small_gpu_s >= P) | (single_first & (problem.array_others_gpu_s == 0))
    classes = select([sampled & small, within, sampled], [SMALL, PILOT, MAIN], LATER)
    order = where(classes == PILOT, 0, _levels(P, small_gpu_s, growth))
    turn = lexsort((-problem.age_s, order, classes))
    smallest = (problem.rate > 0) & (problem.replicas == problem.base_replicas[:, None])
    return serve(problem, turn, fastest(problem), keep=keep, strict=True, allowed=smallest, queue=problem.team)


def _pilots_within(problem: Problem, keep: Bools, *, part: float) -> Bools:
    """Waiting pilots (m,), the oldest first, before which pilots hold less than this part of the GPUs."""
    g, waiting = problem.base_gpus, flatnonzero(problem.pilot & ~keep)
    oldest = waiting[lexsort((-problem.age_s[waiting],))]
    held = g[problem.pilot & keep].sum()
    before = held + concatenate([[0.0], cumsum(g[oldest])])[:-1] if oldest.size else empty(0)
    within = problem.pilot & keep
    within[oldest[before < part * problem.capacity.sum()]] = True
    return within


def _levels(P: Floats, least: float, growth: float) -> Floats:
    """Place (m,) in the main queue: the level of what is left, or what is left itself."""
    if growth == 1:
        return P
    known = maximum(where(isfinite(P), P, 1.0), 1.0)
    levels: Floats = ceil(log(known / maximum(least, 1.0)) / log(growth))
    return where(isfinite(P), levels, inf)
