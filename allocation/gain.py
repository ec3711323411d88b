"""One configuration per job, in a round as it is: the locked stay, of equals who runs goes on, growth is limited."""

from collections.abc import Callable

from numpy import arange, inf, maximum, ones, where

from allocation.arrays import Bools, Floats
from allocation.deadline import Deadline
from allocation.decision import Decision
from allocation.picks import best_picks
from allocation.problem import Problem

TIE = 1e-7
"""By so much more, relatively, counts what is held: equals are not swapped."""


def most_gain(
    problem: Problem,
    gain: Floats,
    *,
    scale_up: float,
    gap: float,
    time_limit_s: float,
    objective: Callable[[float], float] = float,
) -> Decision:
    """Pick what gains most together of what jobs may have; a locked job keeps what it holds.

    Parameters
    ----------
    problem : Problem
        u = usage (n, K), c = capacity (n,), base_gpus, most_gpus (m,) GPUs; held, locked (m,); its time limit.
    gain : (m, K), of each configuration; not more than 0: not for that job.
    scale_up : at most so many times the GPUs that jobs of its workload ever had; 0: no limit.
    gap, time_limit_s : how far from the best the answer may be, relative to the objective, and seconds after which the
        answer by prices counts.
    objective : all gains together → the policy's own; that itself, unless given.
    """
    held, locked = problem.held, problem.locked
    stays = arange(problem.gpus.size) == held[:, None]
    worth = where(_allowed(problem, stays, scale_up) & ~locked[:, None], gain, 0)
    kept = problem.usage[:, held[locked]].sum(axis=1)
    best = best_picks(
        where(stays, worth * (1 + TIE), worth),
        problem.usage,
        problem.capacity - kept,
        gap=gap,
        objective=objective,
        deadline=Deadline.of(problem).at_most(time_limit_s),
    )
    picks = where(locked, held, best.picks)
    gained = gain[picks >= 0, picks[picks >= 0]].sum()
    return Decision.of_picks(
        picks,
        prices=best.prices,
        objective=objective(gained),
        bound=objective(gained + best.bound - best.value),
        status=best.status,
        solve_seconds=best.seconds,
        worth=worth,
    )


def _allowed(problem: Problem, stays: Bools, scale_up: float) -> Bools:
    """Which configurations (m, K) a job may have: those it can use, that are not too much at once; and what it holds.

    Too much are more than `scale_up` times the GPUs that jobs of its workload ever had, and more than its least gang.
    """
    most = maximum(scale_up * problem.most_gpus, problem.base_gpus) if scale_up else ones(len(problem.weight)) * inf
    usable: Bools = (problem.rate > 0) & ((problem.gpus <= most[:, None]) | stays)
    return usable
