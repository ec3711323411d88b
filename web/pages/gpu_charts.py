"""Plotly figures of GPU readings: utilization, memory, power and temperature. Pure."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import plotly.graph_objects as go

from accounting_app.gpu_watch.history import UsePoint
from web.pages.charts import LEGEND, Figure, line_of, mode_of
from web.pages.time_zones import axis_time, axis_title

MOST_TICKS = 4
"""Labels of times that lie side by side in a narrow chart; with more they would stand upright and be cut off."""
AROUND_ONE = timedelta(minutes=5)
"""What is shown on both sides of the only point in time."""
FIGURES: dict[str, tuple[str, Callable[[UsePoint], float | None], list[float] | None]] = {
    "utilization": ("Utilization (%)", lambda point: point.utilization, [0, 103]),
    "memory": ("Memory used (GiB)", lambda point: _gib(point.memory_used_mib), None),
    "power": ("Power (W)", lambda point: point.power_w, None),
    "temperature": ("Temperature (°C)", lambda point: point.temperature_c, None),
}
"""Name → title of the axis, value of a point, and range of the axis; without one it begins at zero."""


def gpu_figures(points: Sequence[UsePoint]) -> dict[str, Figure]:
    """A figure for each quantity that the driver reports, with a line for each GPU or for all together."""
    values = {name: [value(point) for point in points] for name, (_, value, _) in FIGURES.items()}
    return {name: _figure(points, values[name], name) for name in FIGURES if any(v is not None for v in values[name])}


def _figure(points: Sequence[UsePoint], values: Sequence[float | None], name: str) -> Figure:
    title, _, limits = FIGURES[name]
    axis = {"title": {"text": title}, "fixedrange": True} | ({"range": limits} if limits else {"rangemode": "tozero"})
    layout: dict[str, Any] = {
        "template": "none",
        "yaxis": axis,
        "xaxis": {
            "type": "date",
            "title": {"text": axis_title()},
            "nticks": MOST_TICKS,
            "tickangle": 0,
            "automargin": True,
        },
        "hovermode": "x unified",
        "legend": LEGEND,
        "margin": {"l": 56, "r": 16, "t": 8, "b": 40},
        "height": 260,
    }
    times = {point.at for point in points}
    if len(times) == 1:  # or Plotly counts milliseconds around it
        layout["xaxis"]["range"] = [axis_time(next(iter(times)) + part * AROUND_ONE) for part in (-1, 1)]
    figure: Figure = go.Figure(_traces(points, values), layout).to_plotly_json()
    figure["layout"].pop("template")
    return figure


def _traces(points: Sequence[UsePoint], values: Sequence[float | None]) -> list[Any]:
    lines: dict[str, list[tuple[str, float | None]]] = {}
    for point, value in zip(points, values, strict=True):
        lines.setdefault(point.name, []).append((axis_time(point.at), None if value is None else round(value, 1)))
    return [
        go.Scatter(
            x=[at for at, _ in line],
            y=[value for _, value in line],
            name=name or "mean of its GPUs",
            mode=mode_of(line),
            line=line_of(position),
        )
        for position, (name, line) in enumerate(lines.items())
    ]


def _gib(mib: float | None) -> float | None:
    return None if mib is None else mib / 1024
