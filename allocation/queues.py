"""Queues: jobs are served in turn, each gets a configuration of what is left."""

from collections.abc import Callable
from time import perf_counter

import numpy as np

from allocation.arrays import Bools, Ints
from allocation.decision import Decision
from allocation.problem import Problem
from allocation.reasons import Reason, ReasonCode

Choose = Callable[[int, Ints, Ints], int]
"""Row, the configurations (k,) that fit, and the GPUs (n,) left → the configuration that it gets."""


def serve(
    problem: Problem,
    turn: Ints,
    choose: Choose,
    *,
    keep: Bools,
    strict: bool,
    passable: bool = False,
    allowed: Bools | None = None,
) -> Decision:
    """Serve rows in turn, after those that keep what they hold; where it is strict, who fits nowhere stops the queue.

    Where it is also passable, GPUs that would hold him but are of no use to him are left to those behind.

    Nobody gets a configuration that is not `allowed` (m, K); all that he can use are, unless given.

    The objective is the number of jobs that run; prices are 0, for a queue has none; who is left is told of the last
    that was served before, or of the one that stops the queue.
    """
    began = perf_counter()
    allowed = problem.rate > 0 if allowed is None else allowed
    picks = np.where(keep, problem.held, -1)
    left = problem.capacity - problem.usage[:, picks[keep]].sum(axis=1)
    behind: dict[int, tuple[Reason, ...]] = {}
    ahead: int | None = None
    stopped = False
    for i in turn[~keep[turn]].tolist():
        if stopped:
            behind[i] = (Reason(ReasonCode.OUTBID, rival=ahead),)
            continue
        fits = np.flatnonzero(allowed[i] & (problem.usage <= left[:, None]).all(axis=0))
        if not fits.size:
            behind |= {i: (Reason(ReasonCode.OUTBID, rival=ahead),)} if ahead is not None else {}
            stops = strict and not (passable and _held_in_vain(problem, i, left))
            ahead, stopped = (i, True) if stops else (ahead, stopped)
            continue
        picks[i] = choose(i, fits, left)
        left = left - problem.usage[:, picks[i]]
        ahead = i
    return Decision.of_picks(
        picks,
        prices=np.zeros(left.size),
        objective=float((picks >= 0).sum()),
        solve_seconds=perf_counter() - began,
        reasons=behind,
    )


def _held_in_vain(problem: Problem, i: int, left: Ints) -> bool:
    """Whether the GPUs left hold a gang of his size, on a type on which he cannot run."""
    of_his_size = problem.gpus == problem.base_gpus[i]
    return bool((of_his_size & (problem.usage <= left[:, None]).all(axis=0)).any())


def holds_something(problem: Problem) -> Bools:
    """Who (m,) holds a configuration that it may have."""
    held = np.take_along_axis(problem.rate, np.maximum(problem.held, 0)[:, None], axis=1)[:, 0]
    return np.asarray(problem.locked | ((problem.held >= 0) & (held > 0)))


def fastest(problem: Problem) -> Choose:
    """The configuration with the highest rate; of equals the one held, then the smallest."""

    def choose(i: int, fits: Ints, _: Ints) -> int:
        keys = (problem.gpus[fits], fits != problem.held[i], -problem.rate[i, fits])
        return int(fits[np.lexsort(keys)[0]])

    return choose


def roomiest(problem: Problem) -> Choose:
    """What is held, where it fits; else the smallest gang of the type with most GPUs left, blind to speed."""
    usage, gpus = problem.usage, problem.gpus

    def choose(i: int, fits: Ints, left: Ints) -> int:
        if problem.held[i] in fits:
            return int(problem.held[i])
        gpu_type = usage[:, fits].argmax(axis=0)
        return int(fits[np.lexsort((gpus[fits], gpu_type, -left[gpu_type]))[0]])

    return choose
