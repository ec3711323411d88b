"""Bars of the timeline: blocks of runs and forecasts, paler the less likely. Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from html import escape
from math import ceil

from insight_app.timeline.merging import Block
from insight_app.timeline.presence import presence
from insight_app.timeline.reading import ExpectedRun, Timeline
from simulation.results.gantt import Bar
from web.pages.time_zones import axis_ms
from web.pages.timeline_chart import EXPECTED_OPACITY, expected_label, expected_link, run_label, run_link

OPACITIES = 4
"""Of blocks of short runs, by the part of their time that they fill; few, because each is an outline."""

Bars = dict[str, list[Bar]]
"""By what is drawn in one colour."""
Place = tuple[ExpectedRun, float, int]
"""A job with a forecast, the first of its rows, and their number."""


def bin_s(timeline: Timeline) -> float:
    return timeline.frame.bin.total_seconds()


def spans_s(timeline: Timeline) -> list[tuple[float, float]]:
    """Start and end of each run; one that goes on ends now. It may begin before the frame."""
    now = timeline.frame.now
    return [(run.began_at.timestamp(), max(run.began_at, run.ended_at or now).timestamp()) for run in timeline.runs]


def block_bars(timeline: Timeline, blocks: Sequence[Block]) -> Bars:
    bars: Bars = defaultdict(list)
    for block in blocks:
        bars[block.group].append(_block_bar(timeline, block))
    return bars


def _block_bar(timeline: Timeline, block: Block) -> Bar:
    row, rows, _, start_s, end_s, index, _, density = block
    run = None if index is None else timeline.runs[index]
    label, link = (run_label(run), run_link(run)) if run else (_density_label(block), "")
    opacity = 1.0 if density >= 1 else ceil(density * OPACITIES) / OPACITIES
    return Bar(axis_ms(start_s), axis_ms(end_s), row + (rows - 1) / 2, label, rows - 0.15, opacity, link)


def _density_label(block: Block) -> str:
    return f"{block.runs} short runs<br>{escape(block.group)}, {block.density:.0%} of this time"


def expected_bars(
    timeline: Timeline,
    places: Iterable[Place],
    group_of: Callable[[ExpectedRun], str],
) -> Bars:
    """Bars of forecasts, paler the less likely."""
    bars: Bars = defaultdict(list)
    for one, row, rows in places:
        group, link = group_of(one), expected_link(one)
        for part in presence(one.forecast, timeline.frame.now, timeline.frame.until):
            start, end = axis_ms(part.since.timestamp()), axis_ms(part.until.timestamp())
            opacity, label = round(EXPECTED_OPACITY * part.probability, 2), expected_label(one, part.probability)
            bars[group].append(Bar(start, end, row + (rows - 1) / 2, label, rows - 0.15, opacity, link))
    return bars
