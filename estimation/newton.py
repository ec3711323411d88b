r"""Newton's method for a smooth function within bounds, to a point where its gradient vanishes to machine precision.

Quasi-Newton methods stop where the value changes little, at a point that depends on the rounding on the way. Newton's
steps converge quadratically, so that two processors end at the same point but for the last few bits.

References
----------
.. [1] Bertsekas, 1982, "Projected Newton Methods for Optimization Problems with Simple Constraints".
.. [2] Nocedal and Wright, 2006, "Numerical Optimization", section 3.4 (modified Hessians).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from estimation.types import Bools, Floats

Evaluation = tuple[float, Callable[[], tuple[Floats, Floats]]]
"""The value at a point x (n,), and what works out the gradient (n,) and the Hessian (n, n) there.

A step that is too long is known by the value alone.
"""
Smooth = Callable[[Floats], Evaluation]

MOST_STEPS = 200
SHORTEST_STEP = 1e-12
SUFFICIENT_DECREASE = 1e-4
LEAST_CURVATURE = 1e-9
"""Of the largest."""
POLISH = 1e-11
"""Of the value: where a step promises less, rounding hides the decrease, and the gradient is made smaller instead."""


class Iterate(NamedTuple):
    """A point, and the function there."""

    x: Floats
    value: float
    gradient: Floats
    hessian: Floats

    @classmethod
    def at(cls, x: Floats, evaluation: Evaluation) -> "Iterate":
        value, derivatives = evaluation
        return cls(x, value, *derivatives())


class Box(NamedTuple):
    """Bounds (n,), the same where a variable is fixed, and the usual size (n,) of each variable."""

    lower: Floats
    upper: Floats
    scale: Floats

    def free(self, at: Iterate) -> Bools:
        """Those variables (n,) that a step down the gradient does not push out of their bounds."""
        held = ((at.x <= self.lower) & (at.gradient >= 0)) | ((at.x >= self.upper) & (at.gradient <= 0))
        free: Bools = ~held & (self.lower < self.upper)
        return free

    def slope(self, at: Iterate) -> float:
        """The largest entry of the scaled gradient among the free variables: 0 at a stationary point."""
        return float(np.abs(at.gradient * self.scale)[self.free(at)].max(initial=0.0))


def minimize_within(function: Smooth, start: Floats, box: Box) -> Iterate:
    """Projected Newton's method with backtracking: a local minimum of a smooth function within bounds."""
    at = Iterate.at(start, function(start))
    for _ in range(MOST_STEPS):
        step = _newton_step(at, box)
        decrease = -float(at.gradient @ step)
        following = _backtracked(function, at, step, box) if decrease > POLISH else _polished(function, at, step, box)
        if following is None:
            break
        at = following
    return at


def _newton_step(at: Iterate, box: Box) -> Floats:
    """Newton's step in the free variables, with the absolute curvature where the function is not convex."""
    free, step = box.free(at), np.zeros_like(at.x)
    scale = box.scale[free]
    curvature, V = np.linalg.eigh(at.hessian[free][:, free] * (scale[:, None] * scale))
    curvature = np.abs(curvature)
    curvature = np.maximum(curvature, LEAST_CURVATURE * max(1.0, curvature.max(initial=0.0)))
    step[free] = -scale * (V @ (V.T @ (at.gradient[free] * scale) / curvature))
    return step


def _backtracked(function: Smooth, at: Iterate, step: Floats, box: Box) -> Iterate | None:
    """The first point along the step, halved again and again, where the value is sufficiently smaller."""
    length = 1.0
    while length > SHORTEST_STEP:
        x = np.minimum(np.maximum(at.x + length * step, box.lower), box.upper)
        tried = function(x)
        if tried[0] < at.value - SUFFICIENT_DECREASE * max(float(at.gradient @ (at.x - x)), 0.0):
            return Iterate.at(x, tried)
        length /= 2
    return None


def _polished(function: Smooth, at: Iterate, step: Floats, box: Box) -> Iterate | None:
    """The point after the whole step, if the gradient is smaller there."""
    x = np.clip(at.x + step, box.lower, box.upper)
    tried = Iterate.at(x, function(x))
    return tried if box.slope(tried) < box.slope(at) else None
