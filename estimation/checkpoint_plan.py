r"""Checkpoint plans: after which stages of its work a job saves its state, by dynamic programming.

Between the boundaries 0 .. K of the stages, with cs the prefix sums of their work, the least expected time from a
checkpoint at boundary i is

.. math::
    V_i = \min_{j > i} E\big[T \mid x = cs_j - cs_i + c_j,\ r_i\big] + V_j, \qquad V_K = 0

with E[T] of `estimation.interrupted_work`. The last boundary saves as well: what is done must last. Where all stages
are short and each checkpoint costs the same, the plan is Young's and Daly's interval.

References
----------
.. [1] Toueg and Babaoglu, SIAM Journal on Computing 1984, "On the Optimum Checkpoint Selection Problem".
.. [2] Young, Communications of the ACM 1974, "A First Order Approximation to the Optimum Checkpoint Interval".
.. [3] Daly, Future Generation Computer Systems 2006, "A Higher Order Estimate of the Optimum Checkpoint Interval for
   Restart Dumps".
"""

from collections.abc import Iterator
from math import sqrt
from typing import NamedTuple

import numpy as np

from estimation.interrupted_work import (
    Duration,
    Interruptions,
    duration_of,
    expected_time,
    expected_time_by_age,
)
from estimation.node_lifetimes import SurvivalCurve
from estimation.types import Floats, Ints

JIT_MARGIN = 0.8
"""Part of the notice within which a checkpoint must fit: the rest is for the signal and for slow writes."""


class CheckpointPlan(NamedTuple):
    """Checkpoints (N,), each by the number of stages before it, and the segments (N,) of work that they end.

    segment_s (N,): seconds of a segment with its checkpoint. restore_s (N,): seconds of a restore at its beginning.
    """

    stages: Ints
    segment_s: Floats
    restore_s: Floats
    expected_s: float

    def duration(self, interruptions: Interruptions) -> Duration:
        """Distribution of the time until all is done."""
        return duration_of(self.segment_s, self.restore_s, interruptions)


def plan_checkpoints(
    work_s: Floats,
    cost_s: Floats,
    restore_s: Floats,
    interruptions: Interruptions,
    *,
    lifetimes: SurvivalCurve | None = None,
    age_s: float | None = None,
) -> CheckpointPlan:
    """The plan of least expected time for stages of these seconds of work (K,). O(K^2).

    cost_s (K,): seconds of the checkpoint after each stage. restore_s (K + 1,): seconds until work goes on from each
    boundary, relaunch included.

    lifetimes: of new nodes, in place of exponential ones without notice. On recorded interruptions such plans did worse
    (`python -m benchmarks.intermittence`): the lifetimes of the past are not those to come.

    age_s: of the node now; with the work it grows older, and what is done again after a loss is on a new one. None:
    each segment begins on a new node.
    """
    K, passed = len(work_s), np.concatenate([[0.0], np.cumsum(work_s)])
    value, best = np.zeros(K + 1), np.zeros(K, dtype=np.int64)
    for i in reversed(range(K)):
        with np.errstate(over="ignore"):  # a segment that is never done takes infinitely long
            age = 0.0 if age_s is None else age_s + float(passed[i])
            x = passed[i + 1 :] - passed[i] + cost_s[i:]
            time = _expected_time(x, restore_s[i], interruptions, lifetimes, age) + value[i + 1 :]
        best[i] = i + 1 + time.argmin()
        value[i] = time.min()
    stages = np.array(list(_followed(best)), dtype=np.int64)
    begins = np.concatenate([[0], stages])[:-1]
    segment_s = passed[stages] - passed[begins] + cost_s[stages - 1]
    return CheckpointPlan(stages, segment_s, restore_s[begins], float(value[0]))


def _expected_time(
    x: Floats, r: float, interruptions: Interruptions, lifetimes: SurvivalCurve | None, age_s: float
) -> Floats:
    if lifetimes is None:
        return expected_time(x, r, interruptions)
    return expected_time_by_age(x, r, lifetimes, mean_down_s=interruptions.mean_down_s, age_s=age_s)


def _followed(best: Ints) -> Iterator[int]:
    """The boundaries that the choices (K,) lead to from the beginning on."""
    i = 0
    while i < len(best):
        i = int(best[i])
        yield i


def young_interval(cost_s: float, mean_up_s: float) -> float:
    """Seconds of work between checkpoints of this cost, to first order."""
    return sqrt(2 * cost_s * mean_up_s)


def daly_interval(cost_s: float, mean_up_s: float) -> float:
    """Seconds of work between checkpoints of this cost, to a higher order."""
    if cost_s >= 2 * mean_up_s:
        return mean_up_s
    part = sqrt(cost_s / (2 * mean_up_s))
    return young_interval(cost_s, mean_up_s) * (1 + part / 3 + part**2 / 9) - cost_s


class CheckpointTerms(NamedTuple):
    """What decides how often a job saves: the interruptions of its nodes, and the seconds of a checkpoint, if known."""

    interruptions: Interruptions
    cost_s: float | None = None


def with_notice(interruptions: Interruptions, cost_s: float) -> Interruptions:
    """The interruptions of a job whose checkpoint takes this long: without notice if it does not fit into that."""
    fits = cost_s <= JIT_MARGIN * interruptions.notice_s
    return interruptions if fits else interruptions._replace(notified=0.0)
