"""Plotly figure of a plan's options by run time and cost, with the Pareto-optimal ones joined by a line. Pure."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from insight_app.explain.cost_and_time import CostAndTime, CostOption, CostUnit
from insight_app.gpu_prices.wording import format_hours, is_told
from simulation.results.time_units import TimeUnit, format_duration, unit_of
from web.pages.charts import Figure

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star")
"""GPU types differ by shape as well as by colour."""
GREY = "#7a8594"
RING = "#d55e00"
UNLABELLED = {"hoverinfo": "skip", "showlegend": False}


def cost_figure(found: CostAndTime, colours: Mapping[str, str], *, currency: str) -> Figure:
    """A point per option in the colour of its GPU type; the page explains the line and the ring."""
    unit = unit_of(option.run_seconds / 3600 for option in found.options)
    kinds = sorted({option.gpu_type for option in found.options})
    traces = [_line(found.options, unit), _ring(found.options, unit)]
    for place, kind in enumerate(kinds):
        of_kind = [option for option in found.options if option.gpu_type == kind]
        marker = {"color": colours.get(kind, GREY), "symbol": SYMBOLS[place % len(SYMBOLS)], "size": 10}
        words = [_words(option, found.unit, currency) for option in of_kind]
        traces.append(_points(of_kind, unit, name=escape(kind.upper()), marker=marker, words=words))
    figure: Figure = go.Figure(traces, _layout(found.unit, unit, currency)).to_plotly_json()
    figure["layout"].pop("template")
    return figure


def _line(options: Sequence[CostOption], unit: TimeUnit) -> Any:
    best = sorted((option for option in options if option.pareto_optimal), key=lambda option: option.run_seconds)
    line = {"color": GREY, "width": 1.5, "dash": "dot"}
    return go.Scatter(**_places(best, unit), mode="lines", name="Pareto-optimal", line=line, **UNLABELLED)


def _ring(options: Sequence[CostOption], unit: TimeUnit) -> Any:
    marker = {"symbol": "circle-open", "size": 20, "color": RING, "line": {"width": 2}}
    preferred = [option for option in options if option.preferred]
    return go.Scatter(**_places(preferred, unit), mode="markers", name="fastest", marker=marker, **UNLABELLED)


def _points(
    options: Sequence[CostOption], unit: TimeUnit, *, name: str, marker: Mapping[str, Any], words: Sequence[str]
) -> Any:
    return go.Scatter(
        **_places(options, unit),
        mode="markers+text",
        name=name,
        showlegend=True,
        marker={**marker, "line": {"color": GREY, "width": 1}},
        text=[str(option.gpus) for option in options],
        textposition="top right",
        cliponaxis=False,
        hovertext=words,
        hoverinfo="text",
    )


def _places(options: Sequence[CostOption], unit: TimeUnit) -> dict[str, list[float]]:
    times = [option.run_seconds / 3600 * unit.per_hour for option in options]
    return {"x": times, "y": [option.cost for option in options]}


def _words(option: CostOption, unit: CostUnit, currency: str) -> str:
    """Hover text of a point."""
    cost = f"{option.cost:.3g} {currency if unit is CostUnit.PRICE else 'GPU-hours'}".strip()
    waits_h = option.others_wait_h
    waits = f"<br>others wait {format_hours(waits_h)}" if is_told(waits_h) else ""
    name = f"{option.gpus} {escape(option.gpu_type.upper())}"
    return f"{name}<br>{format_duration(option.run_seconds)}<br>{escape(cost)}{waits}"


def _layout(cost: CostUnit, unit: TimeUnit, currency: str) -> dict[str, Any]:
    in_money = f"Cost ({escape(currency)})" if currency else "Cost"
    title = in_money if cost is CostUnit.PRICE else "GPU-hours"
    axis = {"fixedrange": True, "rangemode": "tozero", "automargin": True}
    return {
        "template": "none",
        "xaxis": {"title": {"text": f"Run time ({unit.name})"}, **axis},
        "yaxis": {"title": {"text": title}, **axis},
        "hovermode": "closest",
        "legend": {"orientation": "h", "x": 0, "y": 1.04, "yanchor": "bottom"},
        "margin": {"l": 56, "r": 16, "t": 16, "b": 40},
        "height": 300,
    }
