r"""Lifetimes of nodes: Kaplan-Meier survival of up intervals, and rates of interruption shrunk to those of the pool.

An interval that has not ended, or whose end says nothing of the node, is right censored: its length counts, its end
does not. With d_i ends among the n_i intervals that are at least t_i long,

.. math::
    \hat S(x) = \prod_{t_i \le x} (1 - d_i / n_i), \qquad
    \hat\lambda = \frac{\text{ends} + 1}{\text{exposure} + M_0}

The rate is the posterior mean of an exponential rate under a Gamma prior that counts as one end in the pool's mean
lifetime :math:`M_0`. A node without history has the pool's rate, and one with many ends its own.

References
----------
.. [1] Kaplan and Meier, Journal of the American Statistical Association 1958, "Nonparametric Estimation from Incomplete
   Observations".
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from estimation.types import Bools, Floats

PRIOR_ENDS = 1.0
"""Weight of the pool in the rate of a node, in ends of up intervals."""


@dataclass(frozen=True, eq=False)
class SurvivalCurve:
    """A survival function: `survival[i]` from `time[i]` s on, until `time[i + 1]`; 1 before `time[0]`."""

    time: Floats
    survival: Floats

    def at(self, x: Floats | float) -> Floats:
        """P(L > x)."""
        steps = np.concatenate([[1.0], self.survival])
        found: Floats = steps[np.searchsorted(self.time, x, side="right")]
        return found

    def mean_below(self, x: Floats | float) -> Floats:
        """E[min(L, x)] in seconds: the area below the curve up to x."""
        edges, steps = np.concatenate([[0.0], self.time]), np.concatenate([[1.0], self.survival])
        area = np.concatenate([[0.0], np.cumsum(steps[:-1] * np.diff(edges))])
        last = np.searchsorted(edges, x, side="right") - 1
        found: Floats = area[last] + steps[last] * (x - edges[last])
        return found


def kaplan_meier(length: Floats, ended: Bools) -> SurvivalCurve:
    """The survival function of intervals of these lengths in seconds (N,), those without an end being right censored.

    After the longest observation it stays at its last value.
    """
    times = np.unique(length[ended])
    at_risk = (length[:, None] >= times).sum(axis=0)
    ends = (length[ended][:, None] == times).sum(axis=0)
    return SurvivalCurve(times, np.cumprod(1 - ends / at_risk))


class Exposure(NamedTuple):
    """Ends of intervals, and the seconds in which they could have ended."""

    ends: int
    seconds: float

    @classmethod
    def of(cls, length: Floats, ended: Bools) -> Self:
        return cls(int(ended.sum()), float(length.sum()))

    def shrunk_mean(self, pool_mean_s: float) -> float:
        """Mean length in seconds, shrunk to that of the pool: 1 over the rate above."""
        return (self.seconds + PRIOR_ENDS * pool_mean_s) / (self.ends + PRIOR_ENDS)


class NodeLifetime(NamedTuple):
    """Mean seconds for which a node is up and down, and what is known of the notice that it gives."""

    mean_up_s: float
    mean_down_s: float
    notified: float = 0.0
    """Probability that an interruption is announced in time for a checkpoint."""

    @property
    def availability(self) -> float:
        """Part of the time in which it is up."""
        return self.mean_up_s / (self.mean_up_s + self.mean_down_s)


def gang_lifetime(nodes: Iterable[NodeLifetime]) -> NodeLifetime:
    """Lifetime of a gang, which ends with the first of its nodes: rates add up.

    The time down and the notice are those of the node that ends it, so weighted by rates.
    """
    members = list(nodes)
    rates = np.array([1 / node.mean_up_s for node in members])
    weight = rates / rates.sum()
    mean_down_s, notified = (float(weight @ [node[column] for node in members]) for column in (1, 2))
    return NodeLifetime(float(1 / rates.sum()), mean_down_s, notified)
