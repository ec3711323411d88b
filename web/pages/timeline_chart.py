"""Figure of the timeline: bars of teams or GPU types, expected ones paler, and the line of now. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape, unescape
from uuid import UUID

from insight_app.timeline.reading import ExpectedRun, Run
from insight_app.timeline.time_range import Frame
from simulation.results.gantt import Bar, BarSeries, gantt_figure, row_px
from web.pages.charts import OKABE_ITO, Figure
from web.pages.time_zones import axis_time

OTHERS = "other teams"
HIDDEN = "another team"
"""In place of the name of a job that the reader may not see."""
GREY = "#8f99a8"
EXPECTED_OPACITY = 0.55
"""Of what is certain to run; what is less likely is paler."""
LONGEST_TICK = 18
LEAST_TICK_PX = 13
LEAST_LEFT_PX, CHARACTER_PX = 12, 7
TOOLS_PX = 34
"""Height of the buttons above the legend."""
WHEN = "%{base|%d %b %H:%M:%S}"
NOW_COLOUR, AHEAD_COLOUR = "#7a8594", "rgba(122,133,148,0.07)"


@dataclass(frozen=True)
class Chart:
    """Series of bars in so many rows, and labels of rows."""

    series: Sequence[BarSeries]
    rows: float
    ticks: Mapping[float, str]
    legend: bool = True
    """Whether colours mean what the labels of rows do not say."""


def timeline_figure(chart: Chart, frame: Frame) -> Figure:
    """The chart with a date axis over the frame; what lies ahead of now is shaded."""
    figure = gantt_figure(chart.series, chart.rows, chart.ticks, when=WHEN)
    since, now, until = map(axis_time, (frame.since, frame.now, frame.until))
    height = figure["layout"]["height"]
    everywhere = {"yref": "paper", "y0": 0, "y1": 1}
    figure["layout"] |= {
        "xaxis": {
            "type": "date",
            "range": [since, until],
            "tickangle": 0,
            "side": "top",
        },
        "showlegend": chart.legend,
        "legend": {"orientation": "h", "y": 1 - TOOLS_PX / height, "yanchor": "top", "yref": "container", "x": 0},
        "margin": {"l": _left_px(chart.ticks.values()), "r": 12, "t": 96 if chart.legend else 68, "b": 24},
        "shapes": [
            {"type": "rect", "x0": now, "x1": until, "fillcolor": AHEAD_COLOUR, "layer": "below", **everywhere}
            | {"line": {"width": 0}},
            {"type": "line", "x0": now, "x1": now, "line": {"color": NOW_COLOUR, "width": 2}, **everywhere},
        ],
        "annotations": [
            {"x": now, "y": 1, "yref": "paper", "text": "now", "showarrow": False, "xanchor": "left", "yanchor": "top"}
        ],
    }
    # A wheel or a finger scrolls the page. To find the labels' width and those that fit, Plotly would draw them thrice.
    figure["layout"]["yaxis"] |= {"fixedrange": True, "automargin": False, "ticklabeloverflow": "allow"}
    return figure


def _left_px(labels: Iterable[str]) -> int:
    """Width of the labels of rows."""
    return LEAST_LEFT_PX + CHARACTER_PX * max((len(unescape(label)) for label in labels), default=0)


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """Colour of each name, in their order; after seven they repeat."""
    return {name: OKABE_ITO[i % len(OKABE_ITO)] for i, name in enumerate(sorted(set(names)))}


def series_of(bars: Mapping[str, Sequence[Bar]], colours: Mapping[str, str]) -> list[BarSeries]:
    """A series for each name that has bars; grey where the name has no colour."""
    return [BarSeries(escape(name), colours.get(name, GREY), of_name) for name, of_name in sorted(bars.items())]


def run_label(run: Run) -> str:
    """Hover text of the bar of one run, without its times."""
    if not run.seen:
        return f"{HIDDEN}<br>{run.gpus} {run.gpu_type.upper()}"
    on, ended = f"{run.gpus} {run.gpu_type.upper()}", run.ended_as.replace("_", " ")
    return f"{escape(str(run.job))}<br>{escape(run.job.team)}, {on}, {ended}"


def run_link(run: Run) -> str:
    """The job's page; of a job that the reader may not see, the round that placed it."""
    return job_link(run.job.pk) if run.seen else f"rounds/{run.round_number}"


def job_link(pk: UUID) -> str:
    """Relative to the page: `reverse` would take a third of the time of a chart with thousands of bars."""
    return f"jobs/{pk}"


def expected_label(one: ExpectedRun, probability: float) -> str:
    """Hover text of a part of a forecast."""
    name, now = escape(str(one.job)) if one.seen else HIDDEN, "runs now" if one.run else "waits now"
    return f"{name}<br>{one.gpus} {one.gpu_type.upper()}, {now}, expected to run with {probability:.0%}"


def expected_link(one: ExpectedRun) -> str:
    """As of its run; a job that waits is shown only to those who may see it."""
    return run_link(one.run) if one.run else job_link(one.job.pk)


def ticks_that_fit(labels: Mapping[float, str], rows: float) -> dict[float, str]:
    """Labels by row, cut and escaped, without those that would overlap the one above."""
    apart = LEAST_TICK_PX / row_px(rows)
    found: dict[float, str] = {}
    last = -apart
    for row, label in sorted(labels.items()):
        if row - last >= apart:
            found[row], last = escape(_cut(label)), row
    return found


def _cut(label: str) -> str:
    return label if len(label) <= LONGEST_TICK else f"{label[: LONGEST_TICK - 1]}…"
