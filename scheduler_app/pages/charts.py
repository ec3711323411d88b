"""Plotly figures of the fairness and utilization pages. Pure; the page's script sets colours of text and grid."""

from collections.abc import Iterable, Sequence
from typing import Any

import plotly.graph_objects as go

from scheduler_app.fairness.history import Point

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
"""Colour-blind-safe palette; black is left out because it is invisible on a dark page."""
DASHES = ("solid", "dot", "dashdot", "longdash")
"""After seven lines colours repeat with another dash."""

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


def utilization_figure(points: Sequence[Point]) -> Figure:
    """Utilization per GPU type as a line."""
    traces = [
        _trace(name.upper(), mine := [p for p in points if p.name == name], [p.value for p in mine], line_of(position))
        for position, name in enumerate(_names(points))
    ]
    return _figure(traces, title="Utilization")


def _names(points: Iterable[Point]) -> list[str]:
    return sorted({point.name for point in points})


def line_of(position: int) -> dict[str, Any]:
    """Colour and dash of the line at this place."""
    colour = OKABE_ITO[position % len(OKABE_ITO)]
    return {"color": colour, "dash": DASHES[position // len(OKABE_ITO) % len(DASHES)], "width": 2}


def _trace(name: str, points: Sequence[Point], y: list[float], line: dict[str, Any]) -> Any:
    x = [point.at.isoformat() for point in points]
    return go.Scatter(x=x, y=y, name=name, mode="lines", line=line, hovertemplate="%{y:.0%}")


def _figure(traces: list[Any], *, title: str) -> Figure:
    layout = {
        "template": "none",
        "yaxis": {"title": {"text": title}, "tickformat": ".0%", "range": [0, 1.03], "fixedrange": True},
        "xaxis": {"type": "date"},
        "hovermode": "x unified",
        "legend": {"orientation": "h", "y": -0.15},
        "margin": {"l": 64, "r": 16, "t": 16, "b": 48},
        "height": 380,
    }
    figure: Figure = go.Figure(traces, layout).to_plotly_json()
    figure["layout"].pop("template")
    return figure
