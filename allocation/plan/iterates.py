"""Iterates of the interior-point method of the plan, for a block of jobs; `interior_point` has the formulas."""

import numpy as np

from allocation.plan.reduction import JobBlock
from allocation.types import Bools, Floats

MOST_CORRECTION = 10.0
"""Second-order terms of a step at most, as a multiple of the complementarity that is aimed at."""
SHARE = 0.7
"""Fraction of time, capacity and work that the starting point uses: it lies in the interior of all constraints."""


class JobIterates:
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
        """Sum over the pieces of each interval: (b, Q, …) to (b, T, …)."""
        if self._pieces == 1:
            return values
        b, Q = values.shape[:2]
        total: Floats = values.reshape(b, Q // self._pieces, self._pieces, *values.shape[2:]).sum(axis=2)
        return total

    @property
    def used(self) -> Floats:
        """GPU-seconds (T, n) used."""
        used: Floats = self._by_interval(summed(self.x * self.count[:, None, None], self._u)).sum(axis=0)
        return used

    def want(self, q: int) -> Floats:
        """GPU-seconds (n,) that an equal share of piece q uses, where the work that is left allows it."""
        seconds = SHARE * self.length[:, q, None] * self._share
        work = (seconds * self._f).sum(axis=1)
        # A part of the work stays late, and some is done in each piece: the point is in the interior.
        most = SHARE * np.maximum(self._left - 0.01, 0) + 0.005 / self.length.shape[1]
        self.x[:, q] = seconds * np.minimum(1, most / np.maximum(work, 1e-300))[:, None]
        self._wanted: Floats = np.tensordot(self.count[:, None] * self.x[:, q], self._u, axes=2)
        return self._wanted

    def take(self, q: int, part: float) -> Floats:
        """Keep that part of what was wanted in piece q; returns the GPU-seconds (n,) used."""
        self.x[:, q] *= part
        self._left = self._left - (self.x[:, q] * self._f).sum(axis=1)
        return part * self._wanted

    def begin(self) -> tuple[Floats, Floats]:
        """Set the slacks and the costs to go; returns what the GPUs of each interval save, and GPU-seconds (T,)."""
        done, self.r = self._work(self.x), self.length - self.x.sum(axis=2)
        self.z = 1 - done.sum(axis=1)
        self.alpha = np.minimum(0.5 * self.late, 1.5 * ((done * self.cost).sum(axis=1) + self.z * self.late))
        gains = self.count[:, None] * np.maximum(self.alpha[:, None] - self.cost, 0) * done
        gpu_s = self.count[:, None] * summed(self.x, self._u.sum(axis=2)[..., None])[..., 0]
        return self._by_interval(gains).sum(axis=0), self._by_interval(gpu_s).sum(axis=0)

    def _work(self, x: Floats) -> Floats:
        """Fraction (b, Q) of each job's work that is done in each piece, where it runs for the seconds x (b, Q, V)."""
        done: Floats = summed(x, self._f[..., None])[..., 0]
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
        """Schur complement in the prices: block diagonal (T, n, n), and the matrix (T n, T n) subtracted from it."""
        self._D = self.x / self.s
        sums = summed(self._D, self._sums)
        self._h1, self._hf, self._hu = sums[..., 0] + self.r / self.sigma, sums[..., 1], sums[..., 2:]
        squares = summed(self._D * self._f[:, None], self._sums[..., 1:])
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
        """The block's term (T, n) of the right-hand side of the Schur complement system."""
        x, r, z = self._to
        sums = summed(x, self._sums)
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
        self.primal_shrink = max(shrink(self._dx, self.x), shrink(self._dr, self.r), shrink(self._dz, self.z))
        left = self.late - self.alpha
        self.dual_shrink = max(shrink(self._ds, self.s), shrink(self._dsigma, self.sigma), shrink(-self._dalpha, left))
        self.dual_change = float(self.count @ (self._dalpha - (self.length * self._dsigma).sum(axis=1)))

    def close(self, has_room: Bools) -> None:
        """Run no job before its release, nor on a type (T, n) without capacity."""
        self.x *= self._is_open[..., None]
        needs = np.matmul(np.repeat(~has_room, self._pieces, axis=0), self._u.swapaxes(1, 2) > 0)
        self.x[needs] = 0

    def step(self, primal: float, dual: float) -> None:
        """Move by these step lengths along the primal and the dual direction."""
        self.x += primal * self._dx
        self.s += dual * self._ds
        self.r, self.z = self.r + primal * self._dr, self.z + primal * self._dz
        self.sigma, self.alpha = self.sigma + dual * self._dsigma, self.alpha + dual * self._dalpha


def summed(x: Floats, weights: Floats) -> Floats:
    """Sums (b, Q, w) of x (b, Q, V) by weights (b, V, w); of one configuration a product, many times as fast."""
    sums: Floats = x * weights if x.shape[2] == 1 else np.matmul(x, weights)
    return sums


def shrink(change: Floats, value: Floats) -> float:
    """Inverse of the longest step at which no value is negative."""
    return -float((change / value).min())
