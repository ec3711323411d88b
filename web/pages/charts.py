"""Plotly figures of the fairness and utilization pages. Pure; the page's script sets colours of text and grid."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence, Sized
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import plotly.graph_objects as go

from accounting_app.fairness.history import ClusterState, Point
from web.pages.time_zones import axis_time, axis_title

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
"""Colour-blind-safe palette; black is left out because it is invisible on a dark page."""
DASHES = ("solid", "dot", "dashdot", "longdash")
"""After seven lines colours repeat with another dash."""

LEGEND = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}
"""Above the chart, which makes room for its lines: below, it would lie over the title of the axis."""

Figure = dict[str, Any]


def fairness_figure(points: Sequence[Point]) -> Figure:
    """Delivered work per team as a line, its entitlement as a thin dashed line of the same colour."""
    traces = []
    for position, name in enumerate(_names(points)):
        mine = [point for point in points if point.name == name]
        line = line_of(position)
        traces.append(_trace(f"{name}: delivered", mine, [p.value for p in mine], {**line, "width": 2.5}))
        fair = [p.fair or 0.0 for p in mine]
        traces.append(_trace(f"{name}: entitled", mine, fair, {**line, "width": 1.5, "dash": "dash", "shape": "hv"}))
    return _figure(traces, title="Share of work")


def utilization_figure(points: Sequence[Point], numbers: Mapping[str, int] | None = None) -> Figure:
    """Utilization per GPU type as a line; `numbers`: place of each type in the palette, without it by name."""
    place = numbers or {name: position for position, name in enumerate(_names(points))}
    traces = [
        _trace(
            name.upper(), mine := [p for p in points if p.name == name], [p.value for p in mine], line_of(place[name])
        )
        for name in _names(points)
    ]
    return _figure(traces, title="Utilization")


def delivered_figure(points: Sequence[Point]) -> Figure:
    """Delivered work of the teams as stacked areas, in average GPUs."""
    traces = [
        _area(name, mine := [p for p in points if p.name == name], [p.gpus for p in mine], line_of(position)["color"])
        for position, name in enumerate(_names(points))
    ]
    return _gpus_figure(traces, title="Work, in average GPUs")


STATES = {"busy": "#0072B2", "starting": "#E69F00", "out": "#CC79A7", "idle": "#56B4E9"}
"""State of GPUs → colour of the palette, in the order in which they are stacked."""
STATE_WORDS = {"out": "out of service"}


def states_figure(states: Sequence[ClusterState]) -> Figure:
    """GPUs by what they did as stacked areas up to the capacity, with the demand as a line."""
    traces = [
        _area(STATE_WORDS.get(name, name), states, [getattr(state, name) for state in states], colour)
        for name, colour in STATES.items()
    ]
    demand = go.Scatter(
        x=[axis_time(state.at) for state in states],
        y=[state.demand for state in states],
        name="in use and asked for",
        mode=mode_of(states),
        line={"color": "#D55E00", "width": 2.5, "dash": "dash"},
        hovertemplate="%{y:.1f}",
    )
    return _gpus_figure([*traces, demand], title="GPUs")


RHO_EDGES = (0, 0.5, 0.75, 1, 1.25, 1.5, 2, 3, 5)
"""Lower edges of the bars; the last has no upper one."""


def rho_bars(rhos: Sequence[float]) -> list[tuple[str, int]]:
    """Label and number of jobs of each bar of the distribution."""
    places = [bisect_right(RHO_EDGES, value) - 1 for value in rhos]
    labels = [f"{low:g} to {high:g}" for low, high in pairwise(RHO_EDGES)] + [f"{RHO_EDGES[-1]:g} or more"]
    return [(label, places.count(n)) for n, label in enumerate(labels)]


def rho_figure(bars: Sequence[tuple[str, int]]) -> Figure:
    """Distribution of finish-time fairness; bars above 1 in another colour."""
    colours = [OKABE_ITO[0] if low < 1 else OKABE_ITO[1] for low in RHO_EDGES]
    labels, counts = zip(*bars, strict=True)
    trace = go.Bar(x=labels, y=counts, marker={"color": colours}, name="jobs", hovertemplate="%{y} jobs")
    figure = _figure([trace], title="Jobs")
    axis = {"title": {"text": "Jobs"}, "fixedrange": True, "rangemode": "tozero"}
    figure["layout"] |= {
        "yaxis": axis,
        "xaxis": {"type": "category", "title": {"text": "rho"}, "automargin": True},
        "height": 260,
    }
    figure["layout"] |= {"showlegend": False, "hovermode": "closest"}
    return figure


def _area(name: str, points: Sequence[Point | ClusterState], y: list[float], colour: str) -> Any:
    return go.Scatter(
        x=[axis_time(point.at) for point in points],
        y=y,
        name=name,
        mode=mode_of(points),
        stackgroup="one",
        line={"color": colour, "width": 1},
        hovertemplate="%{y:.1f}",
    )


def _gpus_figure(traces: list[Any], *, title: str) -> Figure:
    figure = _figure(traces, title=title)
    figure["layout"]["yaxis"] = {"title": {"text": title}, "rangemode": "tozero", "fixedrange": True}
    return figure


def _names(points: Iterable[Point]) -> list[str]:
    return sorted({point.name for point in points})


def line_of(position: int) -> dict[str, Any]:
    """Colour and dash of the line at this place."""
    colour = OKABE_ITO[position % len(OKABE_ITO)]
    return {"color": colour, "dash": DASHES[position // len(OKABE_ITO) % len(DASHES)], "width": 2}


def mode_of(points: Sized) -> str:
    """Mode of a line; a single point needs a marker to be visible."""
    return "lines+markers" if len(points) == 1 else "lines"


def over(figure: Figure, length: timedelta, now: datetime) -> Figure:
    """The figure with the whole window up to now on its time axis, even if the data begins later."""
    figure["layout"]["xaxis"]["range"] = [axis_time(now - length), axis_time(now)]
    return figure


def _trace(name: str, points: Sequence[Point], y: list[float], line: dict[str, Any]) -> Any:
    x = [axis_time(point.at) for point in points]
    return go.Scatter(x=x, y=y, name=name, mode=mode_of(points), line=line, hovertemplate="%{y:.0%}")


def _figure(traces: list[Any], *, title: str) -> Figure:
    layout = {
        "template": "none",
        "yaxis": {"title": {"text": title}, "tickformat": ".0%", "range": [0, 1.03], "fixedrange": True},
        "xaxis": {"type": "date", "title": {"text": axis_title()}},
        "hovermode": "x unified",
        "legend": LEGEND,
        "margin": {"l": 64, "r": 16, "t": 16, "b": 48},
        "height": 380,
    }
    figure: Figure = go.Figure(traces, layout).to_plotly_json()
    figure["layout"].pop("template")
    return figure


WIDTH, HEIGHT, MARGIN = 100.0, 24.0, 1.5
MOST_POINTS = 60


def sparkline(values: Sequence[float], *, least: float | None = None, most: float | None = None) -> str:
    """Points of a line over a box of 100 x 24; empty for fewer than two values.

    `least` and `most`: values at the lower and the upper edge, unless given those that occur.
    """
    shown = thinned(values)
    if len(shown) < 2:
        return ""
    low = min(shown) if least is None else least
    high = max(shown) if most is None else most
    span, room = (high - low) or 1.0, HEIGHT - 2 * MARGIN
    points = enumerate(min(max((value - low) / span, 0.0), 1.0) for value in shown)
    return " ".join(f"{WIDTH * n / (len(shown) - 1):.1f},{HEIGHT - MARGIN - room * part:.1f}" for n, part in points)


def area(values: Sequence[float], *, most: float) -> str:
    """Points of the polygon between the line and the lower edge, from zero."""
    line = sparkline(values, least=0.0, most=most)
    return f"0,{HEIGHT:g} {line} {WIDTH:g},{HEIGHT:g}" if line else ""


def thinned(values: Sequence[float]) -> list[float]:
    """Means of consecutive values, such that at most `MOST_POINTS` remain."""
    size = -(-len(values) // MOST_POINTS) or 1
    parts = (values[start : start + size] for start in range(0, len(values), size))
    return [sum(part) / len(part) for part in parts]
