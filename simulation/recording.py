"""What is kept of a run for its charts: how many GPUs were busy when, and who of a sample of jobs ran where."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from allocation.arrays import Floats, Ints
from simulation.engine import Round
from simulation.jobs import Jobs

POINTS = 400
"""Of a curve of use over time."""

SAMPLE = 120
"""Jobs in a Gantt chart: more cannot be told apart on a screen."""

FINEST = 1 / 1000
"""Of the whole time: runs of a job that are less apart are drawn as one."""

SPANS = 4000
"""Bars in a Gantt chart; a browser draws so many at once without a pause."""


class Span(NamedTuple):
    """A job (row of the trace) ran so in a configuration."""

    row: int
    configuration: int
    began_s: float
    ended_s: float


def sampled_rows(jobs: Jobs, most: int = SAMPLE) -> Ints:
    """Some of the jobs that can run, evenly by their arrival; all of them if they are few."""
    rows = np.flatnonzero(jobs.runnable)
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).round().astype(np.int64)]


@dataclass(eq=False)
class Recording:
    """Sees every round of a run, and keeps little of it."""

    jobs: Jobs
    rows: Ints
    """Of whom the spans are kept."""
    _times: list[Floats] = field(default_factory=list)
    _changes: list[Floats] = field(default_factory=list)
    _spans: dict[int, list[Span]] = field(default_factory=dict)
    _kept: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self._kept = set(self.rows.tolist())

    def see(self, seen: Round) -> None:
        """Note what a round changes."""
        used = self.jobs.configurations.usage[:, seen.configurations].T / np.where(seen.mates < 0, 1, 2)[:, None]
        stops, which = np.unique(seen.stops_s, return_inverse=True)
        freed = np.zeros((len(stops), used.shape[1]))
        np.add.at(freed, which, used)
        self._times.append(np.concatenate([[seen.began_s], stops]))
        self._changes.append(np.vstack([used.sum(axis=0), -freed]))
        for row, k, stop_s in zip(seen.rows.tolist(), seen.configurations.tolist(), seen.stops_s.tolist(), strict=True):
            if row in self._kept:
                self._extend(Span(row, k, seen.began_s, stop_s))

    def _extend(self, span: Span) -> None:
        spans = self._spans.setdefault(span.row, [])
        last = spans[-1] if spans else None
        if last and last.configuration == span.configuration and last.ended_s >= span.began_s:
            spans[-1] = last._replace(ended_s=span.ended_s)
        else:
            spans.append(span)

    def busy(self, edges_s: Floats) -> Floats:
        """GPUs (n, ...) that were busy on the mean between one edge and the next."""
        if not self._times:
            return np.zeros((self.jobs.configurations.usage.shape[0], len(edges_s) - 1))
        times, changes = np.concatenate(self._times), np.vstack(self._changes)
        order = np.argsort(times, kind="stable")
        times, level = times[order], np.cumsum(changes[order], axis=0)
        spent = np.vstack([np.zeros(level.shape[1]), np.cumsum(level[:-1] * np.diff(times)[:, None], axis=0)])
        until = np.array([np.interp(edges_s, times, of_type) for of_type in spent.T])
        mean: Floats = np.diff(until, axis=1) / np.diff(edges_s)
        return mean

    def spans(self, whole_s: float, most: int = SPANS) -> list[Span]:
        """Give the spans of the sample; where they are too many, short breaks between them are not shown."""
        gap = FINEST
        while len(spans := self._merged(gap * whole_s)) > most and gap < 1:
            gap *= 2
        return spans

    def _merged(self, gap_s: float) -> list[Span]:
        return [span for row in self.rows.tolist() for span in _joined(self._spans.get(row, []), gap_s)]


def _joined(spans: Sequence[Span], gap_s: float) -> list[Span]:
    """Spans in the same configuration as one, if they are no more than that apart."""
    joined: list[Span] = []
    latest: dict[int, int] = {}
    for span in spans:
        place = latest.get(span.configuration)
        if place is not None and span.began_s - joined[place].ended_s <= gap_s:
            joined[place] = joined[place]._replace(ended_s=span.ended_s)
        else:
            latest[span.configuration] = len(joined)
            joined.append(span)
    return joined
