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

from allocation.plan.reduction import JobBlock
from allocation.time_budget import TimeBudget
from allocation.types import Bools, Floats

MOST_ITERATIONS = 150
TO_BOUNDARY = 0.99
"""Part of the way to the boundary that a step goes at most."""
ROUNDING = 1e-6
"""Part of the capacity of an interval that rounding errors may be."""
MOST_CORRECTION = 10.0
"""Second-order terms of a step at most, as a multiple of the complementarity that is aimed at."""
START_LEVEL = 10.0
"""Complementarity of the first point's time rows, as a multiple of the cost that an average piece of a job has."""
NOTHING = 1e-6
"""Part of the cost of all work being late below which a cost is taken to be none."""
SHARE = 0.7
"""Part of what is possible that the first point uses of intervals, capacity and work."""


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
        self.jobs = [_Jobs(block, pieces, room.shape[1]) for block in blocks]
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
        """Whether the gap is reached, and the rows of capacity hold but for what `fit` takes back."""
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
        """Rounding errors (T, n) of the rows of capacity, which the next step takes back."""
        return self.room - self.g - sum((it.used for it in self.jobs), np.zeros_like(self.g))

    def fit(self, room: Floats) -> None:
        """Take back what stands for no time or capacity, and from all jobs alike what is over it by rounding errors."""
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
        primal = max(_shrink(dg, self.g), *(it.primal_shrink for it in self.jobs))
        dual = max(_shrink(dp, self.p), *(it.dual_shrink for it in self.jobs))
        return min(1.0, part / max(primal, 1e-300)), min(1.0, part / max(dual, 1e-300))


class _Jobs:
    """The iterates of a block of jobs: x, s (b, Q, V); r, sigma (b, Q); z, alpha (b,)."""

    def __init__(self, block: JobBlock, pieces: int, types: int) -> None:
        self.length, self.cost, self.late, self.count = block.least, block.cost, block.late, block.count
        self._is_open = block.length > 0
        self._f, self._u, self._pieces = block.speed, block.usage, pieces
        self._sums = np.concatenate([np.ones_like(self._f)[..., None], self._f[..., None], self._u], axis=2)
        """Columns 1, f and u (b, V, 2 + n), whose weighted sums the method needs."""
        (b, V), Q = self._f.shape, self.length.shape[1]
        self.x, self._left = np.zeros((b, Q, V)), np.ones(b)
        share = np.where(self._f > 0, 1.0, 1e-3) / np.maximum(self._u.sum(axis=2), 1)
        self._share = share / share.sum(axis=1, keepdims=True)
        self.complementarities = float(self.count.sum()) * (Q * V + Q + 1)

    def _by_interval(self, values: Floats) -> Floats:
        """Sums (b, T, …) over the pieces of each interval."""
        if self._pieces == 1:
            return values
        b, Q = values.shape[:2]
        total: Floats = values.reshape(b, Q // self._pieces, self._pieces, *values.shape[2:]).sum(axis=2)
        return total

    @property
    def used(self) -> Floats:
        """GPU-seconds (T, n) used."""
        used: Floats = self._by_interval(np.matmul(self.x * self.count[:, None, None], self._u)).sum(axis=0)
        return used

    def want(self, q: int) -> Floats:
        """GPU-seconds (n,) that an equal share of piece q uses, where the work that is left allows it."""
        seconds = SHARE * self.length[:, q, None] * self._share
        work = (seconds * self._f).sum(axis=1)
        # A part of the work stays late, and some is done in each piece: the point is in the interior.
        most = SHARE * np.maximum(self._left - 0.01, 0) + 0.005 / self.length.shape[1]
        self.x[:, q] = seconds * np.minimum(1, most / np.maximum(work, 1e-300))[:, None]
        return self._used(self.x[:, q])

    def _used(self, seconds: Floats) -> Floats:
        """GPU-seconds (n,) of seconds (b, V)."""
        used: Floats = np.einsum("i,iv,ivj->j", self.count, seconds, self._u, optimize=True)
        return used

    def take(self, q: int, part: float) -> Floats:
        """Keep that part of what was wanted in piece q; returns the GPU-seconds (n,) used."""
        self.x[:, q] *= part
        self._left = self._left - (self.x[:, q] * self._f).sum(axis=1)
        return self._used(self.x[:, q])

    def begin(self) -> tuple[Floats, Floats]:
        """Set the slacks and the costs to go; returns what the GPUs of each interval save, and GPU-seconds (T,)."""
        done, self.r = self._work(self.x), self.length - self.x.sum(axis=2)
        self.z = 1 - done.sum(axis=1)
        self.alpha = np.minimum(0.5 * self.late, 1.5 * ((done * self.cost).sum(axis=1) + self.z * self.late))
        gains = self.count[:, None] * np.maximum(self.alpha[:, None] - self.cost, 0) * done
        gpu_s = self.count[:, None] * np.matmul(self.x, self._u.sum(axis=2)[..., None])[..., 0]
        return self._by_interval(gains).sum(axis=0), self._by_interval(gpu_s).sum(axis=0)

    def _work(self, x: Floats) -> Floats:
        """Part of the work (b, Q) that seconds x do in each piece."""
        done: Floats = np.matmul(x, self._f[..., None])[..., 0]
        return done

    def set_reduced_costs(self, p: Floats, level: float) -> None:
        """Set sigma so that all reduced costs are positive, and complementarities of the time rows at the level."""
        free = self._priced(p, -self.alpha, np.zeros_like(self.r)) + self.cost[..., None] * self._f[:, None]
        self.sigma = 1.1 * np.maximum(-free.min(axis=2), 0) + level / self.r
        self.s = free + self.sigma[..., None]

    def _priced(self, p: Floats, minus_alpha: Floats, sigma: Floats) -> Floats:
        """p u - alpha f + sigma (b, Q, V), without the costs."""
        priced: Floats = np.matmul(np.repeat(p, self._pieces, axis=0), self._u.swapaxes(1, 2))
        priced += (minus_alpha[:, None] * self._f)[:, None]
        priced += sigma[..., None]
        return priced

    @property
    def value(self) -> float:
        return float(self.count @ ((self._work(self.x) * self.cost).sum(axis=1) + self.z * self.late))

    @property
    def gap(self) -> float:
        inside = np.einsum("iqv,iqv->i", self.x, self.s) + (self.r * self.sigma).sum(axis=1)
        return float(self.count @ (inside + self.z * (self.late - self.alpha)))

    def normal_matrix(self) -> tuple[Floats, Floats]:
        """Parts of the system in the prices: blocks (T, n, n) of its diagonal, and what is subtracted (T n, T n)."""
        self._D = self.x / self.s
        sums = np.matmul(self._D, self._sums)
        self._h1, self._hf, self._hu = sums[..., 0] + self.r / self.sigma, sums[..., 1], sums[..., 2:]
        squares = np.matmul(self._D * self._f[:, None], self._sums[..., 1:])
        a = squares[..., 1:] - (self._hf / self._h1)[..., None] * self._hu
        self._a = self._by_interval(a).reshape(len(self.z), -1)
        self._b = (squares[..., 0] - self._hf**2 / self._h1).sum(axis=1) + self.z / (self.late - self.alpha)
        weighted = self._a * np.sqrt(self.count / self._b)[:, None]
        return self._diagonal(), weighted.T @ weighted

    def _diagonal(self) -> Floats:
        n, T = self._u.shape[2], self._a.shape[1] // self._u.shape[2]
        D = self._by_interval(self._D * self.count[:, None, None])
        pairs = (self._u[..., :, None] * self._u[..., None, :]).reshape(-1, n * n)
        direct = D.transpose(1, 0, 2).reshape(T, -1) @ pairs
        scaled = self._hu * np.sqrt(self.count[:, None] / self._h1)[..., None]
        by_t = scaled.reshape(len(self.z), T, self._pieces, n).transpose(1, 0, 2, 3).reshape(T, -1, n)
        diagonal: Floats = direct.reshape(T, n, n) - by_t.swapaxes(1, 2) @ by_t
        return diagonal

    def aim_at_zero(self) -> None:
        """Predictor: what x, r and z change by at the same duals, if complementarities are to be 0."""
        self._to = (-self.x, -self.r, -self.z)

    def aim_at(self, level: float) -> None:
        """Corrector: the same for complementarities at the level, with the second-order terms of the predictor."""
        x = level - np.clip(self._dx * self._ds, -MOST_CORRECTION * level, MOST_CORRECTION * level)
        x /= self.s
        x -= self.x
        r = (level - self._dr * self._dsigma) / self.sigma - self.r
        z = (level + self._dz * self._dalpha) / (self.late - self.alpha) - self.z
        self._to = (x, r, z)

    def right_side(self) -> Floats:
        """Part (T, n) of the right side of the system in the prices."""
        x, r, z = self._to
        sums = np.matmul(x, self._sums)
        self._time = sums[..., 0] + r
        per_h = self._time / self._h1
        self._done = sums[..., 1].sum(axis=1) + z - (self._hf * per_h).sum(axis=1)
        used = self.count[:, None, None] * (sums[..., 2:] - self._hu * per_h[..., None])
        T = self._a.shape[1] // self._u.shape[2]
        direct = self._by_interval(used).sum(axis=0)
        through_work: Floats = ((self.count * self._done / self._b) @ self._a).reshape(T, -1)
        return np.asarray(direct - through_work)

    def solve(self, dp: Floats) -> None:
        """Directions of everything, from that of the prices; and how fast they lead to the boundary."""
        x, r, z = self._to
        self._dalpha = (self._a @ dp.ravel() - self._done) / self._b
        by_piece = np.repeat(dp, self._pieces, axis=0)
        priced = (self._hu * by_piece).sum(axis=2)
        self._dsigma = (self._time - priced + self._hf * self._dalpha[:, None]) / self._h1
        self._ds = self._priced(dp, -self._dalpha, self._dsigma)
        self._dx = x - self._D * self._ds
        self._dr = r - self.r / self.sigma * self._dsigma
        self._dz = z + self.z / (self.late - self.alpha) * self._dalpha
        self.primal_shrink = max(_shrink(self._dx, self.x), _shrink(self._dr, self.r), _shrink(self._dz, self.z))
        left = self.late - self.alpha
        self.dual_shrink = max(
            _shrink(self._ds, self.s), _shrink(self._dsigma, self.sigma), _shrink(-self._dalpha, left)
        )
        self.dual_change = float(self.count @ (self._dalpha - (self.length * self._dsigma).sum(axis=1)))

    def close(self, has_room: Bools) -> None:
        """Run no job before its release, nor on a type (T, n) without capacity."""
        self.x *= self._is_open[..., None]
        needs = np.matmul(np.repeat(~has_room, self._pieces, axis=0), self._u.swapaxes(1, 2) > 0)
        self.x[needs] = 0

    def step(self, primal: float, dual: float) -> None:
        """Go so far."""
        self.x += primal * self._dx
        self.s += dual * self._ds
        self.r, self.z = self.r + primal * self._dr, self.z + primal * self._dz
        self.sigma, self.alpha = self.sigma + dual * self._dsigma, self.alpha + dual * self._dalpha


def _shrink(change: Floats, value: Floats) -> float:
    """Inverse of the longest step at which no value is negative."""
    return -float((change / value).min())
