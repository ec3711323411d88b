"""When a checkpoint pays: Daly's interval from its cost and the time that the nodes stay. Standard library only.

Daly, Future Generation Computer Systems 2006, "A Higher Order Estimate of the Optimum Checkpoint Interval for Restart
Dumps". Where one moment is cheaper than others its own, shorter interval holds: `python -m benchmarks.intermittence`
compares this rule with the best plan for all stages of a job.
"""

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Self

FIRST_AFTER_S = 60.0
"""The first checkpoint of a job, whose cost nobody knows, is made after this time: it measures it."""
USUAL_MEAN_UP_S = 30 * 86_400.0
"""Outside Motley: a failure each month."""
NOTICE_MARGIN = 0.8
"""Part of the notice within which a checkpoint must fit, as the service plans it."""


class NodesStay(NamedTuple):
    """How long the nodes of this attempt stay, as the service expects."""

    mean_up_s: float
    notified: float
    """Part of the interruptions that are announced, by SIGTERM, early enough for a checkpoint of `notice_s`."""
    notice_s: float

    @classmethod
    def of_environment(cls) -> Self:
        return cls(
            float(os.environ.get("MOTLEY_MEAN_UP_SECONDS") or USUAL_MEAN_UP_S),
            float(os.environ.get("MOTLEY_NOTIFIED") or 0),
            float(os.environ.get("MOTLEY_NOTICE_SECONDS") or 0),
        )

    def loss_every_s(self, cost_s: float) -> float:
        """Mean time until an interruption that comes before a checkpoint of this cost can be made."""
        fits = cost_s <= NOTICE_MARGIN * self.notice_s
        surprising = 1 - self.notified if fits else 1.0
        return self.mean_up_s / surprising if surprising > 0 else math.inf


def daly_interval(cost_s: float, mean_up_s: float) -> float:
    """Seconds of work between checkpoints of this cost."""
    if math.isinf(mean_up_s) or cost_s >= 2 * mean_up_s:
        return mean_up_s
    part = math.sqrt(cost_s / (2 * mean_up_s))
    return math.sqrt(2 * cost_s * mean_up_s) * (1 + part / 3 + part**2 / 9) - cost_s


class CheckpointTiming:
    """Time since the last checkpoint of this process, and what it cost."""

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._cost_s: float | None = None
        self._unreported: dict[str, float] = {}

    def next_checkpoint(self, cost_s: float | None = None) -> float:
        """Seconds until a checkpoint of this cost pays; by default of the cost of the last one, here or in an earlier
        attempt."""
        if self._since_s is None:
            self._since_s = time.monotonic()
        cost = cost_s if cost_s is not None else self._known_cost()
        interval_s = (
            FIRST_AFTER_S if cost is None else daly_interval(cost, NodesStay.of_environment().loss_every_s(cost))
        )
        return max(interval_s - (time.monotonic() - self._since_s), 0.0)

    def _known_cost(self) -> float | None:
        told = os.environ.get("MOTLEY_CHECKPOINT_SECONDS")
        return self._cost_s if self._cost_s is not None or not told else float(told)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the checkpoint that is made inside; one that fails is not tried again before the next is due."""
        self._since_s = began_s = time.monotonic()
        yield
        self.saved(time.monotonic() - began_s)

    def saved(self, seconds: float) -> None:
        """Note that a checkpoint was made, and took so long."""
        self._since_s, self._cost_s = time.monotonic(), seconds
        self._unreported = {"checkpoint_s": seconds, "checkpoint_at": time.time()}

    def take_report(self) -> dict[str, float]:
        """Fields of the next progress report about the last checkpoint; empty if it has been reported."""
        report, self._unreported = self._unreported, {}
        return report
