"""Figure of prices of GPU types over time: past ones as solid lines, planned ones dotted. Pure."""

from collections.abc import Mapping, Sequence
from textwrap import wrap

import plotly.graph_objects as go

from allocation.policies import PRICE_UNIT
from insight_app.timeline.prices import TypePrice
from insight_app.timeline.time_range import Frame
from web.pages.charts import LEGEND, Figure, line_of
from web.pages.time_zones import axis_time

MOST_IN_LINE = 24
"""Characters of the upright title of an axis."""


def price_figure(prices: Sequence[TypePrice], frame: Frame, numbers: Mapping[str, int]) -> Figure:
    """A line for each GPU type, of steps; `numbers`: places of the types in the palette."""
    names = sorted({one.gpu_type for one in prices})
    traces = [
        _line(some, name, planned=planned, place=numbers.get(name, len(numbers)))
        for name in names
        for planned in (False, True)
        if (some := [one for one in prices if one.gpu_type == name and one.planned is planned])
    ]
    axis = {"type": "date", "range": [axis_time(frame.since), axis_time(frame.until)]}
    return figure_of_prices(traces, unit=PRICE_UNIT, axis=axis)


def figure_of_prices(traces: Sequence[go.Scatter], *, unit: str, axis: Mapping[str, object]) -> Figure:
    """A low chart of one line for each GPU type, from 0 on."""
    layout = {
        "template": "none",
        "yaxis": {"title": {"text": _title(unit)}, "rangemode": "tozero", "fixedrange": True, "automargin": True},
        "xaxis": axis,
        "hovermode": "x unified",
        "legend": LEGEND,
        "showlegend": True,
        "margin": {"l": 64, "r": 16, "t": 8, "b": 48},
        "height": 260,
    }
    figure: Figure = go.Figure(traces, layout).to_plotly_json()
    figure["layout"].pop("template")
    return figure


def _title(unit: str) -> str:
    """In lines that are no longer than the chart is high."""
    return "<br>".join(wrap(f"{unit[0].upper()}{unit[1:]}", MOST_IN_LINE))


def _line(some: Sequence[TypePrice], name: str, *, planned: bool, place: int) -> go.Scatter:
    """The price holds until the next, and to the end of the last."""
    line = line_of(place) | {"shape": "hv"} | ({"dash": "dot"} if planned else {})
    return go.Scatter(
        x=[axis_time(at) for at in (*(one.since for one in some), some[-1].until)],
        y=[*(one.price for one in some), some[-1].price],
        name=f"{name.upper()}{', planned' if planned else ''}",
        mode="lines",
        line=line,
    )
