r"""Checkpoint plans: after which stages of its work a job saves its state, and how, by dynamic programming.

Between the boundaries 0 .. K of the stages, with cs the prefix sums of their work, the least expected time from a
checkpoint at boundary i by mechanism m is

.. math::
    V_{i m} = \min_{j > i,\; m'} E\big[T \mid x = (cs_j - cs_i)(1 + o_{m'}) + c_{m'}(j),\ r_m(i)\big] + V_{j m'},
    \qquad V_{K m} = 0

with E[T] of `estimation.interrupted_work`. The last boundary saves as well: what is done must last. Where all stages
are short and each checkpoint costs the same, the plan is Young's and Daly's interval.

References
----------
.. [1] Toueg and Babaoglu, SIAM Journal on Computing 1984, "On the Optimum Checkpoint Selection Problem".
.. [2] Young, Communications of the ACM 1974, "A First Order Approximation to the Optimum Checkpoint Interval".
.. [3] Daly, Future Generation Computer Systems 2006, "A Higher Order Estimate of the Optimum Checkpoint Interval for
   Restart Dumps".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple, Self

import numpy as np

from estimation.interrupted_work import (
    Duration,
    Interruptions,
    duration_of,
    expected_loss,
    expected_time,
    expected_time_by_age,
)
from estimation.node_lifetimes import SurvivalCurve
from estimation.types import Floats, Ints

JIT_MARGIN = 0.8
"""Part of the notice within which a checkpoint must fit: the rest is for the signal and for slow writes."""


@dataclass(frozen=True, eq=False)
class Mechanism:
    """A way to save state: cost (K,) in seconds of the checkpoint after each stage, infinite where it cannot be used.

    restore_s (K + 1,): seconds until work goes on from each boundary, relaunch included. `overhead`: part by which work
    is slower while it is in use, as copies are sent behind the computation.
    """

    name: str
    cost_s: Floats
    restore_s: Floats
    overhead: float = 0.0


def synchronous(state_bytes: Floats, *, write_per_s: float, read_per_s: float, relaunch_s: float) -> Mechanism:
    """Work waits while the state (K,) after each stage is written; bandwidths in bytes/s."""
    return Mechanism("synchronous", state_bytes / write_per_s, _restore(state_bytes, read_per_s, relaunch_s))


def asynchronous(
    state_bytes: Floats, *, copy_per_s: float, read_per_s: float, relaunch_s: float, overhead: float
) -> Mechanism:
    """Work waits for a copy in the host's memory, and is slower by `overhead` while copies are uploaded."""
    restore_s = _restore(state_bytes, read_per_s, relaunch_s)
    return Mechanism("asynchronous", state_bytes / copy_per_s, restore_s, overhead)


def _restore(state_bytes: Floats, read_per_s: float, relaunch_s: float) -> Floats:
    """Before the first stage there is nothing to read."""
    return relaunch_s + np.concatenate([[0.0], state_bytes / read_per_s])


class Checkpoint(NamedTuple):
    """A checkpoint of a plan: after how many stages, by which mechanism."""

    stage: int
    mechanism: str


class CheckpointPlan(NamedTuple):
    """The checkpoints in order, and the segments (N,) between them: seconds with the checkpoint, and of restore."""

    checkpoints: Sequence[Checkpoint]
    segment_s: Floats
    restore_s: Floats
    expected_s: float

    def duration(self, interruptions: Interruptions) -> Duration:
        """Distribution of the time until all is done."""
        return duration_of(self.segment_s, self.restore_s, interruptions)

    def expected_loss_s(self, interruptions: Interruptions) -> float:
        """Expected seconds of work lost in one pass over all segments."""
        return float(expected_loss(self.segment_s, interruptions).sum())


def plan_checkpoints(
    work_s: Floats,
    mechanisms: Sequence[Mechanism],
    interruptions: Interruptions,
    *,
    lifetimes: SurvivalCurve | None = None,
    age_s: float | None = None,
) -> CheckpointPlan:
    """The plan of least expected time for stages of these seconds of work (K,). O(K^2 M^2) for M mechanisms.

    lifetimes: of new nodes, in place of exponential ones without notice. On recorded interruptions such plans did worse
    (`python -m benchmarks.intermittence`): the lifetimes of the past are not those to come.

    age_s: of the node now; with the work it grows older, and what is done again after a loss is on a new one. None:
    each segment begins on a new node.
    """
    stages = _Stages.of(work_s, mechanisms)
    K, M = stages.cost.shape
    value, best = np.zeros((K + 1, M)), np.zeros((K, M), dtype=np.int64)
    for i in reversed(range(K)):
        x, r = stages.segments(i), stages.restore[i][:, None, None]
        with np.errstate(over="ignore"):  # a segment that is never done takes infinitely long
            age = 0.0 if age_s is None else age_s + float(stages.passed[i])
            time = (_expected_time(x, r, interruptions, lifetimes, age) + value[i + 1 :]).reshape(M, -1)
        best[i], value[i] = time.argmin(axis=1), time.min(axis=1)
    return _follow(best, stages, [mechanism.name for mechanism in mechanisms], float(value[0, 0]))


def _expected_time(
    x: Floats, r: Floats, interruptions: Interruptions, lifetimes: SurvivalCurve | None, age_s: float
) -> Floats:
    if lifetimes is None:
        return expected_time(x, r, interruptions)
    return expected_time_by_age(x, r, lifetimes, mean_down_s=interruptions.mean_down_s, age_s=age_s)


class _Stages(NamedTuple):
    """Work passed (K + 1,), and of each mechanism the cost (K, M), the restore (K + 1, M) and the stretch (M,)."""

    passed: Floats
    cost: Floats
    restore: Floats
    stretch: Floats

    @classmethod
    def of(cls, work_s: Floats, mechanisms: Sequence[Mechanism]) -> Self:
        return cls(
            np.concatenate([[0.0], np.cumsum(work_s)]),
            np.stack([mechanism.cost_s for mechanism in mechanisms], axis=1),
            np.stack([mechanism.restore_s for mechanism in mechanisms], axis=1),
            1 + np.array([mechanism.overhead for mechanism in mechanisms]),
        )

    def segments(self, i: int) -> Floats:
        """Seconds (K - i, M) of the segments that begin at boundary i, by their end and its mechanism."""
        work = self.passed[i + 1 :] - self.passed[i]
        segments: Floats = work[:, None] * self.stretch + self.cost[i:]
        return segments


def _follow(best: Ints, stages: _Stages, names: Sequence[str], expected_s: float) -> CheckpointPlan:
    """The plan that the choices (K, M) make from the beginning on."""
    (K, M), i, m = stages.cost.shape, 0, 0
    checkpoints, segment_s, restore_s = [], [], []
    while i < K:
        ahead, chosen = divmod(int(best[i, m]), M)
        segment_s.append(stages.segments(i)[ahead, chosen])
        restore_s.append(stages.restore[i, m])
        i, m = i + ahead + 1, chosen
        checkpoints.append(Checkpoint(i, names[m]))
    return CheckpointPlan(checkpoints, np.array(segment_s), np.array(restore_s), expected_s)


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
