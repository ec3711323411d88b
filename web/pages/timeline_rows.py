"""Rows of the timeline by job, and by team. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from html import escape
from itertools import groupby
from uuid import UUID

import numpy as np

from allocation.types import Floats
from insight_app.timeline.merging import Block, merge_spans
from insight_app.timeline.presence import presence
from insight_app.timeline.reading import Timeline
from simulation.results.gantt import Bar
from web.pages.time_zones import axis_ms
from web.pages.timeline_bars import bin_s, block_bars, expected_bars, spans_s
from web.pages.timeline_chart import EXPECTED_OPACITY, Chart, colours_of, series_of, ticks_that_fit

TEAM_BINS = 240
TEAM_ROWS = 2
"""Rows of the chart that a team has."""
LEAST_GPUS = 0.005


# -- by job --------------------------------------------------------------------------------------------------------


def rows_by_job(timeline: Timeline, jobs: Mapping[UUID, str]) -> Chart:
    """A row for each of these jobs, from the top."""
    row_of, times_s = {pk: float(row) for row, pk in enumerate(jobs)}, spans_s(timeline)
    spans = [
        Block(row_of[run.job.pk], 1, run.gpu_type.upper(), *times_s[i], i)
        for i, run in enumerate(timeline.runs)
        if run.seen and run.job.pk in row_of
    ]
    bars = block_bars(timeline, merge_spans(spans, bin_s(timeline)))
    places = ((one, row_of[one.job.pk], 1) for one in timeline.expected if one.job.pk in row_of)
    ahead = expected_bars(timeline, places, lambda one: one.gpu_type.upper())
    colours = colours_of([*bars, *ahead])
    ticks = ticks_that_fit({row_of[pk]: name for pk, name in jobs.items()}, len(jobs))
    return Chart([*series_of(bars, colours), *series_of(ahead, colours)], len(jobs), ticks)


def jobs_in_order(timeline: Timeline) -> dict[UUID, str]:
    """Names of the jobs that the reader may see: those that run, those that wait by place, and those that ended."""
    runs = [run for run in timeline.runs if run.seen]
    waiting = sorted((one for one in timeline.expected if one.run is None), key=lambda one: one.forecast.place)
    ended = sorted((run for run in runs if run.ended_at), key=lambda run: run.began_at, reverse=True)
    in_order = [*(run.job for run in runs if run.ended_at is None), *(one.job for one in waiting)]
    return {job.pk: str(job) for job in (*in_order, *(run.job for run in ended))}


# -- by team -------------------------------------------------------------------------------------------------------


def rows_by_team(timeline: Timeline) -> Chart:
    """A row for each team: the GPUs that it held, and is expected to hold, as the height of its bars."""
    edges = np.linspace(timeline.frame.since.timestamp(), timeline.frame.until.timestamp(), TEAM_BINS + 1)
    levels = {team: _mean_gpus(np.array(spans), edges) for team, spans in sorted(_spans_of_teams(timeline).items())}
    peak = max((float(level.max()) for level in levels.values()), default=0.0) or 1.0
    now_s = timeline.frame.now.timestamp()
    bars = {
        team: [_level_bar(TEAM_ROWS * row, team, *part, peak=peak, now_s=now_s) for part in _steps(level, edges)]
        for row, (team, level) in enumerate(levels.items())
    }
    labels = {TEAM_ROWS * row + (TEAM_ROWS - 1) / 2: team for row, team in enumerate(levels)}
    ticks = ticks_that_fit(labels, TEAM_ROWS * len(levels))
    return Chart(series_of(bars, colours_of(levels)), TEAM_ROWS * len(levels), ticks, legend=False)


def _spans_of_teams(timeline: Timeline) -> dict[str, list[tuple[float, float, float]]]:
    """Start, end and GPUs of each team's past and expected runs, expected GPUs weighted by probability."""
    found: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for run, (start_s, end_s) in zip(timeline.runs, spans_s(timeline), strict=True):
        found[run.job.team].append((start_s, end_s, run.gpus))
    for one in timeline.expected:
        for part in presence(one.forecast, timeline.frame.now, timeline.frame.until):
            expected = one.gpus * part.probability
            found[one.job.team].append((part.since.timestamp(), part.until.timestamp(), expected))
    return found


def _mean_gpus(spans: Floats, edges: Floats) -> Floats:
    """Mean GPUs between consecutive edges, of spans (N, 3) with start, end and GPUs."""
    start, end, gpus = spans.T
    spent = _spent(start, gpus, edges) - _spent(end, gpus, edges)
    mean: Floats = np.diff(spent) / np.diff(edges)
    return mean


def _spent(start: Floats, gpus: Floats, edges: Floats) -> Floats:
    """Cumulative GPU time until each edge, as if no started span ended: sums over the sorted starts."""
    order = np.argsort(start)
    since, held = start[order] - edges[0], gpus[order]
    begun = np.searchsorted(since, edges - edges[0])
    sums = np.concatenate([[[0.0, 0.0]], np.cumsum(np.column_stack([held, held * since]), axis=0)])[begun]
    spent: Floats = sums[:, 0] * (edges - edges[0]) - sums[:, 1]
    return spent


def _steps(level: Floats, edges: Floats) -> Iterator[tuple[float, float, float]]:
    """Start, end and level of each time in which the level does not change, but those without GPUs."""
    at = 0
    for value, same in groupby(np.round(level, 2).tolist()):
        start, at = at, at + len(list(same))
        if value > LEAST_GPUS:
            yield float(edges[start]), float(edges[at]), value


def _level_bar(row: int, team: str, start_s: float, end_s: float, gpus: float, *, peak: float, now_s: float) -> Bar:
    """Its foot is at the foot of the team's rows; the highest bar of the chart fills them."""
    most = TEAM_ROWS - 0.1
    height = most * gpus / peak
    opacity = EXPECTED_OPACITY if start_s >= now_s else 1.0
    label = f"{escape(team)}<br>{gpus:.4g} GPUs" + (" expected" if start_s >= now_s else "")
    return Bar(axis_ms(start_s), axis_ms(end_s), row - 0.45 + most - height / 2, label, height, opacity)
