r"""Stages of a workflow: durations that history expects, corrected by the ratio of the stages that have ended (SLearn).

A job that starts after others is a stage after them. Where the stages before took :math:`x_k` and history had expected
:math:`h_k`, a stage of which history expects h is taken to last c h,

.. math::
    c = \Bigl(\frac{\sum_k x_k}{\sum_k h_k}\Bigr)^{n / (n + 1)}, \qquad \tfrac14 \le c \le 4

over the n nearest stages before it whose expected duration is known: `MOST_STAGES` of the `MOST_LEVELS` levels before
it, so that the cost is linear in the jobs. Each h_k is what history alone expected: the forecast of a
stage that was corrected itself is divided by its own ratio. The exponent is not of the source: it is right where the
stages of a workflow differ as much as workflows do, and limits the harm where one stage tells nothing of the next.

References
----------
.. [1] Jajoo et al., NSDI 2022, "A Case for Task Sampling based Learning for Cluster Job Scheduling" (jobs of several
   stages).
"""

from collections.abc import Hashable, Mapping
from graphlib import TopologicalSorter
from heapq import nsmallest
from operator import itemgetter
from typing import NamedTuple, TypeVar

from estimation.durations import Basis, DurationEstimate

LEAST_RATIO, MOST_RATIO = 0.25, 4.0
MOST_LEVELS, MOST_STAGES = 8, 64
Job = TypeVar("Job", bound=Hashable)


class EndedStage(NamedTuple):
    """A stage that ended: the forecast of its duration, whether that was corrected, and the duration; GPU-seconds."""

    forecast_gpu_s: float
    corrected: bool
    took_gpu_s: float


class StageRatio(NamedTuple):
    """What the ended stages before a job took over what history expected of them, and their number."""

    ratio: float
    stages: int

    def corrected(self, found: DurationEstimate) -> DurationEstimate:
        """An estimate from history, times the ratio."""
        mean = found.estimate.mean * self.ratio
        return DurationEstimate(found.estimate._replace(mean=mean, n=self.stages), Basis.STAGES)


def stage_ratios(parents: Mapping[Job, frozenset[Job]], ended: Mapping[Job, EndedStage]) -> dict[Job, StageRatio]:
    """The ratio of each job with ended stages before it. parents: job -> the jobs that it starts after, no cycles."""
    before: dict[Job, dict[Job, int]] = {}
    expected: dict[Job, float] = {}
    found: dict[Job, StageRatio] = {}
    for job in TopologicalSorter(parents).static_order():  # parents first, without recursion: chains may be long
        before[job] = _nearest(parents.get(job, frozenset()), before, expected)
        if told := before[job]:
            ratio = sum(ended[one].took_gpu_s for one in told) / sum(expected[one] for one in told)
            drawn = ratio ** (len(told) / (len(told) + 1))
            found[job] = StageRatio(min(max(drawn, LEAST_RATIO), MOST_RATIO), len(told))
        if job in ended:
            own = found[job].ratio if ended[job].corrected and job in found else 1.0
            expected[job] = ended[job].forecast_gpu_s / own
    return found


def _nearest(
    parents: frozenset[Job], before: Mapping[Job, Mapping[Job, int]], expected: Mapping[Job, float]
) -> dict[Job, int]:
    """The nearest stages before a job with these parents that tell something -> how many levels they lie before it."""
    levels = {parent: 1 for parent in parents if parent in expected}
    for parent in parents:
        for stage, level in before[parent].items():
            if level < MOST_LEVELS:
                levels[stage] = min(levels.get(stage, MOST_LEVELS), level + 1)
    return dict(nsmallest(MOST_STAGES, levels.items(), key=itemgetter(1)))
