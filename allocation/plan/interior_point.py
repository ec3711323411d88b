r"""Primal-dual interior-point method for the program over time, by elimination down to the rows of capacity.

The program of `allocation.plan.program`, per job of a row, has the slacks r (time), z (late work) and g (capacity), and
its dual the reduced costs s:

.. math::
    s_{iqk} = (\kappa_{iq} - \alpha_i) f_{ik} + \sigma_{iq} + p_{t(q)} u_{\cdot k} \ge 0, \qquad
    \sigma \ge 0, \qquad \alpha_i \le \kappa_i^{\text{late}}, \qquad p \ge 0

Both are feasible from the start, so that every iterate has a value, a bound and their gap, sum x s + sum r sigma + ...
A Newton step for the perturbed complementarity conditions x s = mu, predictor and corrector (Mehrotra), is solved by
elimination: x and s are a diagonal, sigma is a diagonal within each job, and alpha a number of each job. What is left
is a system with a row per GPU type and interval, which is positive definite. With D = x / s a job adds to it

.. math::
    \textstyle\sum_k D u u^T - \frac{h_u h_u^T}{h_1} - \frac{a a^T}{b}, \qquad
    h_w = \textstyle\sum_k D w + [w = 1]\, r / \sigma, \qquad
    a_t = \textstyle\sum_k D f u - \frac{h_f h_u}{h_1}, \qquad
    b = \textstyle\sum_{qk} D f^2 - \sum_q \frac{h_f^2}{h_1} + \frac{z}{\kappa^{\text{late}} - \alpha}

One iteration costs some passes over the entries (jobs x pieces x configurations), in blocks that stay in the cache.

References
----------
.. [1] Mehrotra, SIAM Journal on Optimization 1992, "On the implementation of a primal-dual interior point method".
.. [2] Wright, "Primal-Dual Interior-Point Methods", 1997, chapters 10 and 11 (steps, the normal equations).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from allocation.plan.iterates import SHARE, JobIterates, shrink
from allocation.plan.reduction import JobBlock
from allocation.time_budget import TimeBudget
from allocation.types import Floats

MOST_ITERATIONS = 150
TO_BOUNDARY = 0.99
"""Longest step, as a fraction of the distance to the boundary."""
ROUNDING = 1e-6
"""Part of the capacity of an interval that rounding errors may be."""
START_LEVEL = 10.0
"""Complementarity of the first point's time rows, as a multiple of the cost that an average piece of a job has."""
NOTHING = 1e-6
"""Cost, relative to that of all work being late, below which it counts as zero."""


@dataclass(frozen=True, eq=False)
class InteriorPoint:
    """Feasible solution and dual prices.

    x (of each block, (b, Q, V)) seconds, prices (T, n) per GPU-second, alpha (of each block, (b,)) costs to go.
    """

    x: Sequence[Floats]
    prices: Floats
    alpha: Sequence[Floats]
    iterations: int


def solve(
    blocks: Sequence[JobBlock], room: Floats, least: Floats, *, pieces: int, gap: float, budget: TimeBudget
) -> InteriorPoint:
    """Solve up to a relative gap, or until the time budget or the iterations are spent.

    room (T, n) is in GPU-seconds; least (T, n) stands for it in the interior, where it is 0.
    """
    method = _Method(blocks, np.maximum(room, least), pieces)
    iterations = 0
    while iterations < MOST_ITERATIONS and not method.is_within(gap) and not budget.passed():
        try:
            method.iterate()
        except (np.linalg.LinAlgError, ValueError):  # rounding errors: the point so far is feasible
            break
        iterations += 1
    method.fit(room)
    return InteriorPoint([it.x for it in method.jobs], method.p, [it.alpha for it in method.jobs], iterations)


class _Method:
    """The iterates: p (T, n) prices, g (T, n) spare capacity, and those of each block of jobs."""

    def __init__(self, blocks: Sequence[JobBlock], room: Floats, pieces: int) -> None:
        self.room = room
        self.jobs = [JobIterates(block, pieces, room.shape[1]) for block in blocks]
        self._latest = sum(float(it.count @ it.late) for it in self.jobs)
        self._start(pieces)
        self.complementarities = room.size + sum(it.complementarities for it in self.jobs)

    def _start(self, pieces: int) -> None:
        """First point: all jobs share each interval alike, and prices are what a GPU-second saves then."""
        T, n = self.room.shape
        used, saved, gpu_s = np.zeros((T, n)), np.zeros(T), np.zeros(T)
        for q in range(T * pieces):
            room = SHARE / pieces * self.room[q // pieces]
            wanted = sum((it.want(q) for it in self.jobs), np.zeros(n))
            part = min(1.0, float((room / np.maximum(wanted, 1e-300)).min()))
            for it in self.jobs:
                used[q // pieces] += it.take(q, part)
        for it in self.jobs:
            its_saved, its_gpu_s = it.begin()
            saved, gpu_s = saved + its_saved, gpu_s + its_gpu_s
        worth = saved / np.maximum(gpu_s, 1e-300)
        self.p = np.repeat(SHARE * np.maximum(worth, 1e-6 * max(float(worth.max()), 1e-12))[:, None], n, axis=1)
        self.g = self.room - used
        course = sum(float(it.count @ it.alpha) for it in self.jobs)
        level = START_LEVEL * course / sum(float(it.count.sum()) * it.length.shape[1] for it in self.jobs)
        for it in self.jobs:
            it.set_reduced_costs(self.p, level)

    @property
    def value(self) -> float:
        return sum(it.value for it in self.jobs)

    @property
    def gap(self) -> float:
        """Duality gap: the sum of the complementarities."""
        return float((self.g * self.p).sum()) + sum(it.gap for it in self.jobs)

    def is_within(self, gap: float) -> bool:
        """Whether the optimality gap is reached and capacity is exceeded by no more than `fit` can remove."""
        reached = self.gap <= gap * max(self.value, NOTHING * self._latest)
        return reached and bool((np.abs(self._capacity_error()) <= ROUNDING * self.room).all())

    def iterate(self) -> None:
        """Predictor, corrector, and a step as far as feasibility allows."""
        factor = self._factor()
        before, value = self.gap, self.value
        for it in self.jobs:
            it.aim_at_zero()
        error = self._capacity_error()
        dp, dg = self._direction(factor, -self.g, error)
        primal, dual = self._steps(dp, dg, 1.0)
        risen = sum(it.dual_change for it in self.jobs) - float((self.room * dp).sum())
        ahead = before + primal * (risen - before) - dual * risen
        aim = before / self.complementarities * max(ahead / before, 0.0) ** 3
        for it in self.jobs:
            it.aim_at(aim)
        dp, dg = self._direction(factor, (aim - dg * dp) / self.p - self.g, error)
        primal, dual = self._steps(dp, dg, TO_BOUNDARY)
        if not np.isfinite(value) or max(primal, dual) < 1e-12:
            raise np.linalg.LinAlgError("no step is left")
        self.g, self.p = self.g + primal * dg, self.p + dual * dp
        for it in self.jobs:
            it.step(primal, dual)

    def _factor(self) -> tuple[Floats, Floats]:
        """Cholesky factor of the system in the prices, and the scale of its rows."""
        T, n = self.room.shape
        matrix, diagonal = np.zeros((T * n, T * n)), np.zeros((T, n, n))
        for it in self.jobs:
            its_diagonal, its_rest = it.normal_matrix()
            diagonal += its_diagonal
            matrix -= its_rest
        at = np.arange(T)
        matrix.reshape(T, n, T, n)[at, :, at, :] += diagonal
        matrix[np.diag_indices(T * n)] += (self.g / self.p).ravel()
        scale = 1 / np.sqrt(np.maximum(matrix.diagonal(), 1e-300))
        matrix *= scale
        matrix *= scale[:, None]
        matrix[np.diag_indices(T * n)] += 1e-13
        return scipy.linalg.cholesky(matrix, lower=True, overwrite_a=True), scale

    def _capacity_error(self) -> Floats:
        """Residual (T, n) of the capacity constraints from rounding, which the next step removes."""
        return self.room - self.g - sum((it.used for it in self.jobs), np.zeros_like(self.g))

    def fit(self, room: Floats) -> None:
        """Remove work without time or capacity, and scale all jobs down where rounding errors exceed the capacity."""
        for it in self.jobs:
            it.close(room > 0)
        used = sum((it.used for it in self.jobs), np.zeros_like(room))
        part = np.minimum(1, np.divide(room, used, out=np.ones_like(room), where=used > 0).min(axis=1))
        for it in self.jobs:
            it.x *= np.repeat(part, it.x.shape[1] // len(part))[:, None]

    def _direction(self, factor: tuple[Floats, Floats], aim: Floats, error: Floats) -> tuple[Floats, Floats]:
        """Directions of the prices and of spare capacity; aim (T, n) is the change of the latter at the same prices."""
        lower, scale = factor
        right = sum((it.right_side() for it in self.jobs), aim - error)
        dp = (scale * scipy.linalg.cho_solve((lower, True), scale * right.ravel())).reshape(right.shape)
        for it in self.jobs:
            it.solve(dp)
        return dp, aim - self.g / self.p * dp

    def _steps(self, dp: Floats, dg: Floats, part: float) -> tuple[float, float]:
        """Longest steps, primal and dual, up to 1, that keep everything positive."""
        primal = max(shrink(dg, self.g), *(it.primal_shrink for it in self.jobs))
        dual = max(shrink(dp, self.p), *(it.dual_shrink for it in self.jobs))
        return min(1.0, part / max(primal, 1e-300)), min(1.0, part / max(dual, 1e-300))
