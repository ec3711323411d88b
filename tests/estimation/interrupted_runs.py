"""Runs of work on nodes that come and go, step by step: what the formulas of expected times are compared with."""

from collections.abc import Callable, Sequence

import numpy as np

from estimation.interrupted_work import Interruptions
from estimation.types import Floats

Lifetime = Callable[[np.random.Generator], float]


def weibull(scale_s: float, shape: float) -> Lifetime:
    return lambda rng: float(scale_s * rng.weibull(shape))


def until_done(
    segments: Sequence[float],
    restore_s: float,
    interruptions: Interruptions,
    rng: np.random.Generator,
    *,
    lifetime: Lifetime | None = None,
    age_s: float = 0.0,
) -> float:
    """Seconds until all segments are done, where a lost segment begins anew on a new node."""
    draw = lifetime or weibull(interruptions.mean_up_s, 1.0)
    passed, left, done = 0.0, _left_of(draw, age_s, rng), 0
    need = segments[0]
    while done < len(segments):
        if left >= need:
            passed, left, done = passed + need, left - need, done + 1
            need = segments[done] if done < len(segments) else 0.0
            continue
        if rng.random() < interruptions.notified:  # what is done until the notice stays
            passed += left + interruptions.notice_s
            need += restore_s - left
        else:
            passed += left
            need = segments[done] + restore_s
        passed += rng.exponential(interruptions.mean_down_s)
        left = draw(rng)
    return passed


def _left_of(draw: Lifetime, age_s: float, rng: np.random.Generator) -> float:
    """What is left of a lifetime that is known to exceed the age."""
    while (length := draw(rng)) <= age_s:
        pass
    return length - age_s


def durations(runs: int, *arguments: object, **options: object) -> Floats:
    """So many runs from a fixed seed."""
    rng = np.random.default_rng(7)
    return np.array([until_done(*arguments, rng, **options) for _ in range(runs)])
