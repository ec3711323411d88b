"""Timeline of a run: busy GPUs over time, and the running intervals of a sample of jobs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from allocation.types import Floats, Ints
from simulation.clock.run import SimulatedRound
from simulation.workloads.jobs import Jobs

POINTS = 400
"""Points of a curve over time."""

SAMPLE = 120
"""Most jobs in a Gantt chart."""

FINEST = 1 / 1000
"""Gap, as a fraction of the whole time, below which two intervals of a job are drawn as one."""

SPANS = 4000
"""Most bars in a Gantt chart, which a browser still draws without a pause."""


class RunningSpan(NamedTuple):
    """Interval in which a job (row of the trace) ran in one configuration."""

    row: int
    configuration: int
    began_s: float
    ended_s: float


def sampled_rows(jobs: Jobs, most: int = SAMPLE) -> Ints:
    """Sample of the jobs that can run, evenly spaced by arrival; all of them if they are few."""
    rows = np.flatnonzero(jobs.runnable)
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).round().astype(np.int64)]


@dataclass(eq=False)
class TimelineRecorder:
    """Records the timeline of a run, round by round."""

    jobs: Jobs
    rows: Ints
    """Jobs whose intervals are kept."""
    _times: list[Floats] = field(default_factory=list)
    _changes: list[Floats] = field(default_factory=list)
    _spans: dict[int, list[RunningSpan]] = field(default_factory=dict)
    _kept: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self._kept = set(self.rows.tolist())

    def see(self, seen: SimulatedRound) -> None:
        """Record a round."""
        used = self.jobs.configurations.usage[:, seen.configurations].T / np.where(seen.mates < 0, 1, 2)[:, None]
        stops, which = np.unique(seen.stops_s, return_inverse=True)
        freed = np.zeros((len(stops), used.shape[1]))
        np.add.at(freed, which, used)
        self._times.append(np.concatenate([[seen.began_s], stops]))
        self._changes.append(np.vstack([used.sum(axis=0), -freed]))
        for row, k, stop_s in zip(seen.rows.tolist(), seen.configurations.tolist(), seen.stops_s.tolist(), strict=True):
            if row in self._kept:
                self._extend(RunningSpan(row, k, seen.began_s, stop_s))

    def _extend(self, span: RunningSpan) -> None:
        spans = self._spans.setdefault(span.row, [])
        last = spans[-1] if spans else None
        if last and last.configuration == span.configuration and last.ended_s >= span.began_s:
            spans[-1] = last._replace(ended_s=span.ended_s)
        else:
            spans.append(span)

    def busy(self, edges_s: Floats) -> Floats:
        """Mean number of busy GPUs (n, ...) between consecutive edges."""
        if not self._times:
            return np.zeros((self.jobs.configurations.usage.shape[0], len(edges_s) - 1))
        times, changes = np.concatenate(self._times), np.vstack(self._changes)
        order = np.argsort(times, kind="stable")
        times, level = times[order], np.cumsum(changes[order], axis=0)
        spent = np.vstack([np.zeros(level.shape[1]), np.cumsum(level[:-1] * np.diff(times)[:, None], axis=0)])
        until = np.array([np.interp(edges_s, times, of_type) for of_type in spent.T])
        mean: Floats = np.diff(until, axis=1) / np.diff(edges_s)
        return mean

    def spans(self, whole_s: float, most: int = SPANS) -> list[RunningSpan]:
        """Intervals of the sampled jobs; if there are too many, short gaps are closed."""
        gap = FINEST
        while len(spans := self._merged(gap * whole_s)) > most and gap < 1:
            gap *= 2
        return spans

    def _merged(self, gap_s: float) -> list[RunningSpan]:
        return [span for row in self.rows.tolist() for span in _joined(self._spans.get(row, []), gap_s)]


def _joined(spans: Sequence[RunningSpan], gap_s: float) -> list[RunningSpan]:
    """Merge intervals in the same configuration that are at most `gap_s` apart."""
    joined: list[RunningSpan] = []
    latest: dict[int, int] = {}
    for span in spans:
        place = latest.get(span.configuration)
        if place is not None and span.began_s - joined[place].ended_s <= gap_s:
            joined[place] = joined[place]._replace(ended_s=span.ended_s)
        else:
            latest[span.configuration] = len(joined)
            joined.append(span)
    return joined
