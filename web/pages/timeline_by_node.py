"""Rows of the timeline by node: a row for each GPU, and rows for the jobs that wait. Pure."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import groupby

from insight_app.timeline.merging import Block, merge_spans
from insight_app.timeline.outages import Outage
from insight_app.timeline.presence import presence
from insight_app.timeline.reading import ExpectedRun, Run, Timeline, TimelineGpu
from scheduler_app.models import TimeWindow
from simulation.results.gantt import FEW, Bar, BarSeries
from web.pages.charts import OKABE_ITO
from web.pages.time_zones import axis_ms
from web.pages.timeline_bars import Place, bin_s, block_bars, expected_bars, spans_s
from web.pages.timeline_chart import OTHERS, Chart, colours_of, series_of, ticks_that_fit

NODE_GAP, TYPE_GAP = 0.5, 1.0
"""Empty rows after the GPUs of a node and of a GPU type."""
LANES = 8
"""Most rows of a GPU type for jobs that wait; those that find no lane are in the table."""
OUTAGES = {
    "down": ("#b3261e", "x"),
    "cordoned": ("#8f99a8", "/"),
    "drained": ("#8f99a8", "\\"),
    "asleep": ("#8f99a8", "."),
    "retired": ("#8f99a8", "."),
}
OUT_OF_SERVICE = ("#8f99a8", "/")
OUTAGE_OPACITY = 0.6
WINDOWS = {TimeWindow.Kind.MAINTENANCE: ("#9a78d6", "-"), TimeWindow.Kind.RESERVATION: ("#1fa3a3", "|")}
WINDOW_NAMES = {TimeWindow.Kind.MAINTENANCE: "maintenance", TimeWindow.Kind.RESERVATION: "reserved"}

Waiting = tuple[ExpectedRun, int]
"""A job that waits, and its lane."""
RowGroup = tuple[float, int]
"""First row and number of rows of adjacent ones."""
NodeRows = dict[str, RowGroup]
LinkOfWindow = Callable[[int], str]
"""The page of a window, by its key; empty: the reader may not see it."""


@dataclass
class GpuRows:
    """Rows of GPUs and nodes, and the first of the rows for jobs that wait for a GPU type; filled from the top."""

    of_gpu: dict[int, float] = field(default_factory=dict)
    of_node: NodeRows = field(default_factory=dict)
    lane_of: dict[str, float] = field(default_factory=dict)
    rows: float = 0.0
    _gpu_labels: dict[float, str] = field(default_factory=dict)
    _node_labels: dict[float, str] = field(default_factory=dict)

    def add_node(self, node: str, gpus: Sequence[TimelineGpu]) -> None:
        rows = {self.rows + i: gpu for i, gpu in enumerate(gpus)}
        self.of_gpu |= {gpu.pk: row for row, gpu in rows.items()}
        self.of_node[node] = (self.rows, len(gpus))
        self._gpu_labels |= {row: f"{node} · {gpu.slot}" for row, gpu in rows.items()}
        self._node_labels[self.rows + (len(gpus) - 1) / 2] = node
        self.rows += len(gpus) + NODE_GAP

    def add_lanes(self, gpu_type: str, lanes: int) -> None:
        self.lane_of[gpu_type] = self.rows
        for labels in (self._gpu_labels, self._node_labels):
            labels[self.rows + (lanes - 1) / 2] = f"waits for {gpu_type.upper()}"
        self.rows += lanes

    @property
    def labels(self) -> dict[float, str]:
        """Labels of GPUs where there is room, else of nodes."""
        return ticks_that_fit(self._gpu_labels if self.rows <= FEW else self._node_labels, self.rows)


def rows_by_node(
    timeline: Timeline, gpus: Sequence[TimelineGpu], gpus_of: Mapping[int, Sequence[int]], link_of: LinkOfWindow
) -> Chart:
    """A row for each GPU, grouped by type and node; below each type rows for the jobs that wait for it.

    `gpus_of` are the GPUs that each attempt held, `link_of` the page of a window.
    """
    waiting = _waiting_by_type(timeline)
    rows, times_s = _gpu_rows(gpus, waiting), spans_s(timeline)
    teams = _coloured_teams(timeline, times_s)
    places = _places(rows, gpus_of)
    spans = [
        Block(first, number, _team_group(run, teams), *times_s[i], i)
        for i, run in enumerate(timeline.runs)
        for first, number in places.get(run.pk, ())
    ]
    bars = block_bars(timeline, merge_spans(spans, bin_s(timeline)))
    at = [*_of_running(timeline, places), *_of_waiting(rows, waiting)]
    ahead = expected_bars(timeline, at, lambda one: _team_group(one, teams))
    colours = colours_of(teams)
    below = [*_outage_series(timeline, rows.of_node), *_window_series(timeline, rows.of_node, link_of)]
    return Chart([*below, *series_of(bars, colours), *series_of(ahead, colours)], rows.rows, rows.labels)


def _places(rows: GpuRows, gpus_of: Mapping[int, Sequence[int]]) -> dict[int, list[RowGroup]]:
    """Rows of each attempt; of those that held the same GPUs they are found once."""
    of_gpus = {gpus: list(_adjacent(sorted(_rows_of(rows, gpus)))) for gpus in set(map(tuple, gpus_of.values()))}
    return {pk: of_gpus[tuple(gpus)] for pk, gpus in gpus_of.items()}


def _rows_of(rows: GpuRows, gpus: Iterable[int]) -> Iterator[float]:
    """Rows of GPUs: not of those on another page, or taken out of their node."""
    return (rows.of_gpu[gpu] for gpu in gpus if gpu in rows.of_gpu)


def _coloured_teams(timeline: Timeline, times_s: Sequence[tuple[float, float]]) -> set[str]:
    """Teams of the reader with a colour: those that held GPUs the longest; the others share one colour."""
    gpu_s = {one.job.team: 0.0 for one in timeline.expected if one.seen}
    since_s = timeline.frame.since.timestamp()
    for run, (start_s, end_s) in zip(timeline.runs, times_s, strict=True):
        if run.seen:
            gpu_s[run.job.team] = gpu_s.get(run.job.team, 0.0) + run.gpus * (end_s - max(start_s, since_s))
    return set(sorted(gpu_s, key=lambda team: (-gpu_s[team], team))[: len(OKABE_ITO)])


def _team_group(one: Run | ExpectedRun, coloured: Collection[str]) -> str:
    return one.job.team if one.seen and one.job.team in coloured else OTHERS


def _gpu_rows(gpus: Sequence[TimelineGpu], waiting: Mapping[str, Sequence[Waiting]]) -> GpuRows:
    rows = GpuRows()
    for gpu_type, of_type in groupby(gpus, key=lambda gpu: gpu.gpu_type):
        for node, of_node in groupby(of_type, key=lambda gpu: gpu.node):
            rows.add_node(node, list(of_node))
        if there := waiting.get(gpu_type):
            rows.add_lanes(gpu_type, 1 + max(lane for _, lane in there))
        rows.rows += TYPE_GAP
    return rows


def _of_running(timeline: Timeline, places: Mapping[int, Sequence[RowGroup]]) -> Iterator[Place]:
    """Jobs that run, on their GPUs."""
    for one in timeline.expected:
        if one.run:
            yield from ((one, first, number) for first, number in places.get(one.run.pk, ()))


def _of_waiting(rows: GpuRows, waiting: Mapping[str, Sequence[Waiting]]) -> Iterator[Place]:
    """Jobs that wait, in the lanes of the GPU types that are shown."""
    for gpu_type, first in rows.lane_of.items():
        yield from ((one, first + lane, 1) for one, lane in waiting[gpu_type])


def _waiting_by_type(timeline: Timeline) -> dict[str, list[Waiting]]:
    types = sorted({one.gpu_type for one in timeline.expected if one.run is None})
    found = {name: list(_in_lanes(timeline, name)) for name in types}
    return {name: waiting for name, waiting in found.items() if waiting}


def _adjacent(rows: Sequence[float]) -> Iterator[RowGroup]:
    for _, group in groupby(enumerate(rows), key=lambda pair: pair[1] - pair[0]):
        there = [row for _, row in group]
        yield there[0], len(there)


def _in_lanes(timeline: Timeline, gpu_type: str) -> Iterator[Waiting]:
    """Each job in the first lane that is free when it may start; those without a lane are left out."""
    waiting = [one for one in timeline.expected if one.run is None and one.gpu_type == gpu_type]
    free_at = [timeline.frame.now] * LANES
    for one in sorted(waiting, key=lambda it: (it.forecast.place, str(it.job.pk))):
        ahead = list(presence(one.forecast, timeline.frame.now, timeline.frame.until))
        lane = next((i for i, at in enumerate(free_at) if ahead and at <= ahead[0].since), None)
        if lane is not None:
            free_at[lane] = ahead[-1].until
            yield one, lane


def _outage_series(timeline: Timeline, rows: NodeRows) -> list[BarSeries]:
    found: dict[str, list[Bar]] = defaultdict(list)
    for outage in timeline.outages:
        if outage.node in rows:
            found[outage.what].append(_outage_bar(timeline, outage, rows[outage.node]))
    look = {what: OUTAGES.get(what, OUT_OF_SERVICE) for what in found}
    return [BarSeries(what, look[what][0], bars, look[what][1]) for what, bars in found.items()]


def _outage_bar(timeline: Timeline, outage: Outage, rows: RowGroup) -> Bar:
    """Bar of an outage; without an end it continues beyond now."""
    end = (outage.until or timeline.frame.until).timestamp()
    label = f"{escape(outage.node)}<br>{outage.what}" + (f": {escape(outage.reason)}" if outage.reason else "")
    return _bar_over(rows, outage.since.timestamp(), end, label)


def _window_series(timeline: Timeline, rows: NodeRows, link_of: LinkOfWindow) -> list[BarSeries]:
    found: dict[TimeWindow.Kind, list[Bar]] = defaultdict(list)
    for window in timeline.windows:
        for node in window.nodes:
            if node in rows:
                label = f"{escape(node)}<br>{escape(window.what)}: {escape(window.reason)}"
                times = window.since.timestamp(), window.until.timestamp()
                found[window.kind].append(_bar_over(rows[node], *times, label, link_of(window.window)))
    return [BarSeries(WINDOW_NAMES[kind], WINDOWS[kind][0], bars, WINDOWS[kind][1]) for kind, bars in found.items()]


def _bar_over(rows: RowGroup, start_s: float, end_s: float, label: str, link: str = "") -> Bar:
    """A bar over all rows of a node."""
    first, number = rows
    middle = first + (number - 1) / 2
    return Bar(axis_ms(start_s), axis_ms(end_s), middle, label, number, OUTAGE_OPACITY, link)
