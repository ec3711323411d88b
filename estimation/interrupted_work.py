r"""Expected time and loss of work that interruptions set back to its last checkpoint.

A *segment* is x seconds of work with the checkpoint that ends it. If the node is lost within it, the segment begins
anew on another node, after a mean time down D and a restore of r seconds. For lifetimes L with survival S, the first
attempt on a node of age a, :math:`S_a(x) = S(a + x) / S(a)`, and later ones on new nodes,

.. math::
    E[T] = p\,x + (1 - p) (\ell_a + D + Z), \quad
    Z = (x + r) + \frac{1 - q}{q} (\ell_0 + D), \quad p = S_a(x),\ q = S(x + r)

with :math:`\ell_a = E[L - a \mid a < L < a + x]` and :math:`\ell_0 = E[L \mid L < x + r]`. Exponential lifetimes of
rate :math:`\lambda`, of which a part :math:`\phi` is announced in time for a checkpoint, give

.. math::
    E[T] = e^{\lambda' r} \frac{e^{\lambda' x} - 1}{\lambda'}
           \big(1 + \lambda' D + \lambda \phi (\omega + D + r)\big), \qquad \lambda' = (1 - \phi) \lambda

where :math:`\omega` is the notice, in which work goes on that is lost.

References
----------
.. [1] Daly, Future Generation Computer Systems 2006, "A Higher Order Estimate of the Optimum Checkpoint Interval for
   Restart Dumps".
"""

from typing import NamedTuple

import numpy as np
import scipy

from estimation.node_lifetimes import NodeLifetime, SurvivalCurve
from estimation.types import Floats


class Interruptions(NamedTuple):
    """Memoryless interruptions: mean seconds up and down, the announced part, and the notice in seconds."""

    mean_up_s: float
    mean_down_s: float
    notified: float = 0.0
    notice_s: float = 0.0

    @classmethod
    def of(cls, node: NodeLifetime, *, notice_s: float = 0.0) -> "Interruptions":
        return cls(*node, notice_s)

    @property
    def loss_rate(self) -> float:
        """Interruptions per second of work that lose the work since the last checkpoint."""
        return (1 - self.notified) / self.mean_up_s


def expected_time(x: Floats, restore_s: Floats | float, interruptions: Interruptions) -> Floats:
    """E[T] in seconds of segments of x seconds, for exponential lifetimes. Any shapes that broadcast."""
    M, D, phi, omega = interruptions
    lost = interruptions.loss_rate
    stretched = 1 + lost * D + phi / M * (omega + D + restore_s)
    expected: Floats = np.exp(lost * restore_s) * _work_until(x, lost) * stretched
    return expected


def _work_until(x: Floats, rate: float) -> Floats:
    """(e^(rate x) - 1) / rate, also where nothing is ever lost."""
    done: Floats = np.expm1(rate * x) / rate if rate > 0 else np.asarray(x, dtype=np.float64)
    return done


def expected_time_by_age(
    x: Floats, restore_s: Floats | float, lifetimes: SurvivalCurve, *, mean_down_s: float, age_s: float = 0.0
) -> Floats:
    """E[T] in seconds of segments on a node of this age, for any lifetimes; infinite where none is long enough."""
    alive = float(lifetimes.at(age_s))
    p, q = lifetimes.at(age_s + x) / alive, lifetimes.at(x + restore_s)
    worked = (lifetimes.mean_below(age_s + x) - lifetimes.mean_below(age_s)) / alive
    with np.errstate(divide="ignore"):
        again = (lifetimes.mean_below(x + restore_s) + (1 - q) * mean_down_s) / q
    expected: Floats = worked + np.where(p < 1, (1 - p) * (mean_down_s + again), 0)
    return expected


def expected_loss(x: Floats, interruptions: Interruptions) -> Floats:
    """Expected seconds of work that an interruption takes from one pass over a segment: (1 - p) l."""
    u = interruptions.loss_rate * np.asarray(x, dtype=np.float64)
    lost: Floats = (-np.expm1(-u) - u * np.exp(-u)) / interruptions.loss_rate if interruptions.loss_rate else 0 * u
    return lost


class Duration(NamedTuple):
    """Time until work is done: at least, its mean and variance, and the probability that nothing interrupts it."""

    least_s: float
    mean_s: float
    variance: float
    undisturbed: float

    def done_within(self, seconds: float) -> float:
        """P(T <= seconds), the excess over `least_s` being zero or from a Gamma distribution with these moments."""
        if seconds < self.least_s:
            return 0.0
        disturbed = 1 - self.undisturbed
        mean = (self.mean_s - self.least_s) / disturbed if disturbed > 0 else 0.0
        if mean <= 0:
            return 1.0
        variance = max(self.variance / disturbed - self.undisturbed * mean**2, mean**2 * LEAST_SPREAD)
        within = scipy.special.gammainc(mean**2 / variance, (seconds - self.least_s) * mean / variance)
        return self.undisturbed + disturbed * float(within)


LEAST_SPREAD = 1e-6
"""Of a squared coefficient of variation: keeps rounding from a variance of zero."""


def duration_of(x: Floats, restore_s: Floats | float, interruptions: Interruptions) -> Duration:
    """Time until all segments x (N,) are done: mean and variance of exponential lifetimes and times down.

    Announced interruptions come at their rate while work is done, each costing the notice, the time down and a restore.
    """
    M, D, phi, omega = interruptions
    lost, r = interruptions.loss_rate, np.broadcast_to(restore_s, np.shape(x))
    mean = expected_time(x, r, interruptions)
    soft = phi / M * np.exp(lost * r) * _work_until(x, lost)
    pause = omega + D + r
    variance = _hard_variance(np.asarray(x), r, lost, D) + soft * (pause**2 + D**2)
    undisturbed = float(np.exp(-np.sum(x) / M))
    return Duration(float(np.sum(x)), float(mean.sum()), float(variance.sum()), undisturbed)


def _hard_variance(x: Floats, r: Floats, rate: float, down_s: float) -> Floats:
    """Var[T] of segments where each interruption loses work, by the law of total variance."""
    if rate == 0:
        return np.zeros_like(x)
    p, q = np.exp(-rate * x), np.exp(-rate * (x + r))
    first, first_spread = _truncated(x, rate)
    later, later_spread = _truncated(x + r, rate)
    again = x + r + (1 - q) / q * (later + down_s)
    again_spread = (1 - q) / q * (later_spread + down_s**2) + (1 - q) / q**2 * (later + down_s) ** 2
    failed = first + down_s + again
    variance: Floats = (1 - p) * (first_spread + down_s**2 + again_spread) + p * (1 - p) * (failed - x) ** 2
    return variance


def _truncated(y: Floats, rate: float) -> tuple[Floats, Floats]:
    """Mean and variance of an exponential lifetime that ends before y."""
    u = rate * y
    ended = -np.expm1(-u)
    mean = (ended - u * np.exp(-u)) / ended / rate
    variance: Floats = (2 * ended - (2 * u + u**2) * np.exp(-u)) / ended / rate**2 - mean**2
    return mean, variance
