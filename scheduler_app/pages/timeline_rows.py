"""Rows of the timeline: GPUs by node, GPUs in use by team, attempts by job. Pure."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from uuid import UUID

import numpy as np

from allocation.types import Floats
from scheduler_app.pages.charts import OKABE_ITO
from scheduler_app.pages.timeline_chart import (
    EXPECTED_OPACITY,
    OTHERS,
    Chart,
    colours_of,
    expected_label,
    expected_link,
    milliseconds,
    run_label,
    run_link,
    series_of,
    ticks_that_fit,
)
from scheduler_app.timeline.merging import Block, RowSpan, merge_spans
from scheduler_app.timeline.outages import Outage
from scheduler_app.timeline.presence import presence
from scheduler_app.timeline.reading import ExpectedRun, Run, Timeline, TimelineGpu
from simulation.results.gantt import FEW, Bar, BarSeries, height_px

NODE_GAP, TYPE_GAP = 0.5, 1.0
"""Empty rows after the GPUs of a node and of a GPU type."""
LANES = 8
"""Rows of each GPU type for jobs that wait; those that find no lane are in the table."""
OUTAGES = {
    "down": ("#b3261e", "x"),
    "cordoned": ("#8f99a8", "/"),
    "drained": ("#8f99a8", "\\"),
    "asleep": ("#8f99a8", "."),
}
OUT_OF_SERVICE = ("#8f99a8", "/")
OUTAGE_OPACITY = 0.6
LEAST_OPACITY = 0.25
"""Of a block of short runs that fill little of its time."""
TEAM_BINS = 240
TEAM_ROWS = 2
"""Rows of the chart that a team has."""
LEAST_GPUS = 0.005

Bars = dict[str, list[Bar]]


# -- by node -------------------------------------------------------------------------------------------------------


def rows_by_node(timeline: Timeline, gpus: Sequence[TimelineGpu], gpus_of: Mapping[int, Sequence[int]]) -> Chart:
    """A row for each GPU, grouped by type and node; below each type rows for the jobs that wait for it.

    `gpus_of` are the GPUs that each attempt held.
    """
    row_of, ticks, lanes, rows = _gpu_rows(gpus, timeline.expected)
    teams = _coloured_teams(timeline)
    places = {pk: list(_adjacent(sorted(row_of[gpu] for gpu in of_run))) for pk, of_run in gpus_of.items()}
    spans = [
        RowSpan(first, number, _team_group(run, teams), *_shown_s(timeline, run), i)
        for i, run in enumerate(timeline.runs)
        for first, number in places.get(run.pk, ())
    ]
    bars = _block_bars(timeline, merge_spans(spans, _bin_s(timeline)))
    ahead = _expected_bars(timeline, _places_ahead(timeline, places, lanes), lambda one: _team_group(one, teams))
    outages, colours = _outage_series(timeline, gpus, row_of), colours_of(teams)
    return Chart([*outages, *series_of(bars, colours), *series_of(ahead, colours)], rows, ticks)


def _coloured_teams(timeline: Timeline) -> set[str]:
    """Those teams of the reader that held GPUs the longest; the others have one colour together."""
    gpu_s: dict[str, float] = defaultdict(float)
    for run in timeline.runs:
        if run.seen:
            start_s, end_s = _shown_s(timeline, run)
            gpu_s[run.job.team] += run.gpus * (end_s - start_s)
    for one in timeline.expected:
        if one.seen:
            gpu_s[one.job.team] += 0.0
    return set(sorted(gpu_s, key=lambda team: (-gpu_s[team], team))[: len(OKABE_ITO)])


def _team_group(one: Run | ExpectedRun, coloured: Collection[str]) -> str:
    return one.job.team if one.seen and one.job.team in coloured else OTHERS


def _gpu_rows(
    gpus: Sequence[TimelineGpu], expected: Sequence[ExpectedRun]
) -> tuple[dict[int, float], dict[float, str], dict[str, float], float]:
    """Row of each GPU, labels of rows, first lane of each GPU type with jobs that wait, and the number of rows."""
    few = len(gpus) <= FEW
    waited_for = {one.gpu_type for one in expected if one.run is None}
    row_of: dict[int, float] = {}
    labels: dict[float, str] = {}
    lanes: dict[str, float] = {}
    row = 0.0
    for gpu_type, of_type in groupby(gpus, key=lambda gpu: gpu.gpu_type):
        for node, of_node in groupby(of_type, key=lambda gpu: gpu.node):
            there = list(of_node)
            row_of |= {gpu.pk: row + i for i, gpu in enumerate(there)}
            if few:
                labels |= {row + i: f"{node} · {gpu.slot}" for i, gpu in enumerate(there)}
            else:
                labels[row + (len(there) - 1) / 2] = node
            row += len(there) + NODE_GAP
        if gpu_type in waited_for:
            lanes[gpu_type] = row
            labels[row + (0 if few else (LANES - 1) / 2)] = f"waits for {gpu_type.upper()}"
            row += LANES
        row += TYPE_GAP
    return row_of, ticks_that_fit(labels, height_px(row)), lanes, row


def _places_ahead(
    timeline: Timeline, places: Mapping[int, Sequence[tuple[float, int]]], lanes: Mapping[str, float]
) -> Iterator[tuple[ExpectedRun, float, int]]:
    """Each job that is expected with the first of its rows and their number: its GPUs, or a lane of its type."""
    for expected in timeline.expected:
        if expected.run:
            yield from ((expected, first, number) for first, number in places.get(expected.run.pk, ()))
    for gpu_type, lane_0 in lanes.items():
        waiting = [one for one in timeline.expected if one.run is None and one.gpu_type == gpu_type]
        yield from ((one, lane_0 + lane, 1) for one, lane in _in_lanes(timeline, waiting))


def _adjacent(rows: Sequence[float]) -> Iterator[tuple[float, int]]:
    """First row and number of rows of each group of adjacent ones."""
    for _, group in groupby(enumerate(rows), key=lambda pair: pair[1] - pair[0]):
        there = [row for _, row in group]
        yield there[0], len(there)


def _in_lanes(timeline: Timeline, waiting: Sequence[ExpectedRun]) -> Iterator[tuple[ExpectedRun, int]]:
    """Each job in the first lane that is free when it may start; those without a lane are left out."""
    free_at = [timeline.frame.now] * LANES
    for one in sorted(waiting, key=lambda it: (it.forecast.place, str(it.job.pk))):
        ahead = list(presence(one.forecast, timeline.frame.now, timeline.frame.until))
        lane = next((i for i, at in enumerate(free_at) if ahead and at <= ahead[0].since), None)
        if lane is not None:
            free_at[lane] = ahead[-1].until
            yield one, lane


def _outage_series(timeline: Timeline, gpus: Sequence[TimelineGpu], row_of: Mapping[int, float]) -> list[BarSeries]:
    rows = {node: [row_of[gpu.pk] for gpu in of_node] for node, of_node in groupby(gpus, key=lambda gpu: gpu.node)}
    found: Bars = defaultdict(list)
    for outage in timeline.outages:
        if outage.node in rows:
            found[outage.what].append(_outage_bar(timeline, outage, rows[outage.node]))
    look = {what: OUTAGES.get(what, OUT_OF_SERVICE) for what in found}
    return [BarSeries(what, look[what][0], bars, look[what][1]) for what, bars in found.items()]


def _outage_bar(timeline: Timeline, outage: Outage, rows: Sequence[float]) -> Bar:
    """It goes on beyond now as long as nothing ends it."""
    start = max(outage.since, timeline.frame.since).timestamp()
    end = (outage.until or timeline.frame.until).timestamp()
    label = f"{escape(outage.node)}<br>{outage.what}" + (f": {escape(outage.reason)}" if outage.reason else "")
    middle = (rows[0] + rows[-1]) / 2
    return Bar(milliseconds(start), milliseconds(end), middle, label, len(rows), OUTAGE_OPACITY)


# -- by job --------------------------------------------------------------------------------------------------------


def rows_by_job(timeline: Timeline, jobs: Mapping[UUID, str]) -> Chart:
    """A row for each of these jobs, from the top."""
    row_of = {pk: float(row) for row, pk in enumerate(jobs)}
    spans = [
        RowSpan(row_of[run.job.pk], 1, run.gpu_type.upper(), *_shown_s(timeline, run), i)
        for i, run in enumerate(timeline.runs)
        if run.seen and run.job.pk in row_of
    ]
    bars = _block_bars(timeline, merge_spans(spans, _bin_s(timeline)))
    places = ((one, row_of[one.job.pk], 1) for one in timeline.expected if one.job.pk in row_of)
    ahead = _expected_bars(timeline, places, lambda one: one.gpu_type.upper())
    colours = colours_of([*bars, *ahead])
    ticks = ticks_that_fit({row_of[pk]: name for pk, name in jobs.items()}, height_px(len(jobs)))
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
    ticks = ticks_that_fit(labels, height_px(TEAM_ROWS * len(levels)))
    return Chart(series_of(bars, colours_of(levels)), TEAM_ROWS * len(levels), ticks, legend=False)


def _spans_of_teams(timeline: Timeline) -> dict[str, list[tuple[float, float, float]]]:
    """Start, end and GPUs of what each team's jobs held and are expected to, the latter by its probability."""
    found: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for run in timeline.runs:
        found[run.job.team].append((*_shown_s(timeline, run), run.gpus))
    for one in timeline.expected:
        for part in presence(one.forecast, timeline.frame.now, timeline.frame.until):
            expected = one.gpus * part.probability
            found[one.job.team].append((part.since.timestamp(), part.until.timestamp(), expected))
    return found


def _mean_gpus(spans: Floats, edges: Floats) -> Floats:
    """Mean GPUs between consecutive edges, of spans (N, 3) with start, end and GPUs."""
    start, end, gpus = spans.T
    spent = gpus @ np.clip(edges[None, :] - start[:, None], 0, (end - start)[:, None])
    mean: Floats = np.diff(spent) / np.diff(edges)
    return mean


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
    return Bar(milliseconds(start_s), milliseconds(end_s), row - 0.45 + most - height / 2, label, height, opacity)


# -- bars ----------------------------------------------------------------------------------------------------------


def _bin_s(timeline: Timeline) -> float:
    return timeline.frame.bin.total_seconds()


def _shown_s(timeline: Timeline, run: Run) -> tuple[float, float]:
    """Start and end of the part of a run that lies in the frame."""
    start, end = max(run.began_at, timeline.frame.since), min(run.ended_at or timeline.frame.now, timeline.frame.now)
    return start.timestamp(), max(start, end).timestamp()


def _block_bars(timeline: Timeline, blocks: Sequence[Block]) -> Bars:
    bars: Bars = defaultdict(list)
    for block in blocks:
        bars[block.group].append(_block_bar(timeline, block))
    return bars


def _block_bar(timeline: Timeline, block: Block) -> Bar:
    run = None if block.run is None else timeline.runs[block.run]
    label = run_label(run, timeline.frame.now) if run else _density_label(block)
    opacity = 1.0 if block.density >= 1 else round(max(block.density, LEAST_OPACITY), 2)
    start, end = milliseconds(block.start_s), milliseconds(block.end_s)
    link = run_link(run) if run else ""
    return Bar(start, end, block.row + (block.rows - 1) / 2, label, block.rows - 0.15, opacity, link)


def _density_label(block: Block) -> str:
    return f"{block.runs} short runs<br>{escape(block.group)}, {block.density:.0%} of this time"


def _expected_bars(
    timeline: Timeline,
    places: Iterable[tuple[ExpectedRun, float, int]],
    group_of: Callable[[ExpectedRun], str],
) -> Bars:
    """Bars of what is expected, the paler the less likely."""
    bars: Bars = defaultdict(list)
    for one, row, rows in places:
        group, link = group_of(one), expected_link(one)
        for part in presence(one.forecast, timeline.frame.now, timeline.frame.until):
            start, end = milliseconds(part.since.timestamp()), milliseconds(part.until.timestamp())
            opacity, label = round(EXPECTED_OPACITY * part.probability, 2), expected_label(one, part.probability)
            bars[group].append(Bar(start, end, row + (rows - 1) / 2, label, rows - 0.15, opacity, link))
    return bars
