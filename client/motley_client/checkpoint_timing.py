"""When a checkpoint pays: Daly's interval from its cost and the time that the nodes stay. Standard library only.

Daly, Future Generation Computer Systems 2006, "A Higher Order Estimate of the Optimum Checkpoint Interval for Restart
Dumps". Where one moment is cheaper than others its own, shorter interval holds: `python -m benchmarks.intermittence`
compares this rule with the best plan for all stages of a job.
"""

import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

FIRST_AFTER_S = 60.0
"""The first checkpoint of a job, whose cost nobody knows, is made after this time: it measures it."""
USUAL_MEAN_UP_S = 30 * 86_400.0
"""Outside Motley: a failure each month."""
NOTICE_MARGIN = 0.8
"""Part of the notice within which a checkpoint must fit, as the service plans it."""
LOOK_EVERY_S = 1.0
"""Seconds between reads of the service's file: a loop may ask at each step, and the file may be on a file server."""


class NodesStay(NamedTuple):
    """How long the nodes of this attempt stay, as the service expects."""

    mean_up_s: float
    notified: float
    """Part of the interruptions that are announced, by SIGTERM, early enough for a checkpoint of `notice_s`."""
    notice_s: float

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


class ServiceTimes:
    """What the service expects: as of the launch in the environment, and later in the file that it replaces.

    Of a file that cannot be read, or is not as it should be, what was known before holds.
    """

    def __init__(self) -> None:
        self._looked_at_s = -math.inf
        self._stamp: tuple[int, int] | None = None
        self._told: dict[str, float] = {}

    @property
    def nodes_stay(self) -> NodesStay:
        self._look()
        return NodesStay(
            self._known("mean_up_s", "MOTLEY_MEAN_UP_SECONDS") or USUAL_MEAN_UP_S,
            self._known("notified", "MOTLEY_NOTIFIED") or 0.0,
            self._known("notice_s", "MOTLEY_NOTICE_SECONDS") or 0.0,
        )

    @property
    def checkpoint_s(self) -> float | None:
        """Of the last checkpoint that was reported."""
        self._look()
        return self._known("checkpoint_s", "MOTLEY_CHECKPOINT_SECONDS")

    def _known(self, name: str, variable: str) -> float | None:
        found = self._told.get(name)
        return float(os.environ[variable]) if found is None and os.environ.get(variable) else found

    def _look(self) -> None:
        path, now_s = os.environ.get("MOTLEY_CHECKPOINT_TIMES_FILE"), time.monotonic()
        if not path or now_s < self._looked_at_s + LOOK_EVERY_S:
            return
        self._looked_at_s = now_s
        with suppress(OSError, ValueError, TypeError, AttributeError):
            status = Path(path).stat()
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp != self._stamp:
                told = json.loads(Path(path).read_text(encoding="utf-8"))
                self._told = {name: float(value) for name, value in told.items() if value is not None}
                self._stamp = stamp


class CheckpointTiming:
    """Time since the last checkpoint of this process, and what it cost."""

    def __init__(self) -> None:
        self._service = ServiceTimes()
        self._since_s: float | None = None
        self._cost_s: float | None = None
        self._unreported: dict[str, float] = {}

    def next_checkpoint(self, cost_s: float | None = None) -> float:
        """Seconds until a checkpoint of this cost pays; by default of the cost of the last one, here or in an earlier
        attempt."""
        if self._since_s is None:
            self._since_s = time.monotonic()
        cost = cost_s if cost_s is not None else self._known_cost()
        interval_s = FIRST_AFTER_S if cost is None else daly_interval(cost, self._service.nodes_stay.loss_every_s(cost))
        return max(interval_s - (time.monotonic() - self._since_s), 0.0)

    def _known_cost(self) -> float | None:
        return self._service.checkpoint_s if self._cost_s is None else self._cost_s

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the checkpoint that is made inside; one that fails is not tried again before the next is due."""
        self._since_s = began_s = time.monotonic()
        yield
        self.saved(time.monotonic() - began_s)

    def saved(self, seconds: float) -> None:
        """Note that a checkpoint was made, and took so long."""
        self._since_s, self._cost_s = time.monotonic(), seconds
        self._unreported |= {"checkpoint_s": seconds, "checkpoint_at": time.time()}

    def restored(self, seconds: float) -> None:
        """Note that the checkpoint of an earlier attempt was restored, and took so long."""
        self._unreported |= {"restore_s": seconds, "restored_at": time.time()}

    def take_report(self) -> dict[str, float]:
        """Fields of the next progress report about what was saved or restored; empty if that has been reported."""
        report, self._unreported = self._unreported, {}
        return report
