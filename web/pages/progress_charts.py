"""Plotly figures of a job's progress: loss and steps/s over time, with a line at each move and restart. Pure."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import plotly.graph_objects as go

from jobs_app.measurement.progress_curves import PointOfTime
from web.pages.charts import Figure, line_of
from web.pages.gpu_charts import MOST_TICKS
from web.pages.time_zones import axis_time, axis_title

FROM_ZERO = {"steps/s"}
"""Quantities whose axis begins at 0, so that noise in the third digit of a steady rate does not fill the axis."""


def progress_figures(points: Sequence[PointOfTime], starts: Sequence[datetime]) -> dict[str, Figure]:
    """A figure for loss, rate and each metric reported twice; `starts`: when attempts after the first began."""
    found = {
        "loss": [(point.at, point.loss) for point in points if point.loss is not None],
        "steps/s": [(point.at, point.rate) for point in points if point.rate is not None],
    }
    for name in metric_names(points):
        found.setdefault(name, [(point.at, point.metrics[name][1]) for point in points if name in point.metrics])
    return {name: _figure(name, values, starts) for name, values in found.items() if len(values) > 1}


def metric_names(points: Sequence[PointOfTime]) -> list[str]:
    """Names of the metrics that were reported, in order."""
    return sorted({name for point in points for name in point.metrics})


def _figure(name: str, values: Sequence[tuple[datetime, float]], starts: Sequence[datetime]) -> Figure:
    layout = {
        "template": "none",
        "yaxis": _vertical_axis(name),
        "xaxis": {
            "type": "date",
            "title": {"text": axis_title()},
            "nticks": MOST_TICKS,
            "tickangle": 0,
            "automargin": True,
        },
        "hovermode": "x unified",
        "margin": {"l": 56, "r": 16, "t": 8, "b": 40},
        "height": 260,
        "shapes": [_line_at(at) for at in starts],
    }
    trace = go.Scatter(
        x=[axis_time(at) for at, _ in values],
        y=[value for _, value in values],
        name=name,
        mode="lines",
        line=line_of(0),
    )
    figure: Figure = go.Figure([trace], layout).to_plotly_json()
    figure["layout"].pop("template")
    return figure


def _vertical_axis(name: str) -> dict[str, Any]:
    range_mode = "tozero" if name in FROM_ZERO else "normal"
    return {"title": {"text": name.capitalize()}, "fixedrange": True, "automargin": True, "rangemode": range_mode}


def _line_at(at: datetime) -> dict[str, Any]:
    x = axis_time(at)
    line = {"color": "#888", "width": 1, "dash": "dot"}
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "line": line}
