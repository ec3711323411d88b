"""Gantt chart as a Plotly figure: bars in rows over time. Pure; reports of simulations and the service's timeline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

Figure = dict[str, Any]

LABELLED_PX, NARROW_PX, THIN_PX = 18, 9, 3
"""Height of a row: with a label of its own, without, and where there are hundreds."""
FEW, MANY = 60, 250
"""Rows up to which each is labelled and from which they are thin."""
FRAME_PX = 130
"""For axes and legend."""
SHORTEST_PX = 160


class Bar(NamedTuple):
    """Bar from `start` to `end`, in the unit of the axis, around the middle of a row; rows count from the top."""

    start: float
    end: float
    row: float
    label: str
    """Shown on hover; HTML, so that names in it are escaped. The service's pages allow no styles, so nothing bold."""
    height: float = 0.8
    """In rows; a bar over several adjacent rows is higher than one."""
    opacity: float = 1.0
    link: str = ""
    """Opened on a click."""


@dataclass(frozen=True)
class BarSeries:
    """Bars of one colour and one entry of the legend; series of the same name share the entry."""

    name: str
    colour: str
    bars: Sequence[Bar]
    pattern: str = ""
    """Of Plotly's pattern shapes: `/`, `x`; empty: filled."""


def gantt_figure(
    series: Sequence[BarSeries], rows: float, ticks: Mapping[float, str], *, when: str = "%{base:.4g} h"
) -> Figure:
    """Figure of the bars; `ticks` are labels by row, HTML; `when` tells the start of a bar on hover."""
    drawn = [one for one in series if one.bars]
    first = {one.name: one for one in reversed(drawn)}
    return {
        "data": [_trace(one, when, in_legend=one is first[one.name]) for one in drawn],
        "layout": {
            "barmode": "overlay",
            "bargap": 0,
            "hovermode": "closest",
            "height": height_px(rows),
            "yaxis": {
                "range": [rows - 0.4, -0.6],
                "tickvals": list(ticks),
                "ticktext": list(ticks.values()),
                "showgrid": False,
                "zeroline": False,
                "automargin": True,
            },
        },
    }


def height_px(rows: float) -> int:
    """Height of a figure with so many rows."""
    return round(FRAME_PX + max(SHORTEST_PX, rows * row_px(rows)))


def row_px(rows: float) -> int:
    """Height of each of so many rows, at least."""
    return LABELLED_PX if rows <= FEW else NARROW_PX if rows <= MANY else THIN_PX


def _trace(series: BarSeries, when: str, *, in_legend: bool) -> dict[str, Any]:
    bars = series.bars
    marker: dict[str, Any] = {"color": series.colour, "line": {"width": 0}}
    if any(bar.opacity != 1 for bar in bars):
        marker["opacity"] = [bar.opacity for bar in bars]
    if series.pattern:
        marker["pattern"] = {"shape": series.pattern, "size": 6, "solidity": 0.35}
    return {
        "type": "bar",
        "orientation": "h",
        "name": series.name,
        "legendgroup": series.name,
        "showlegend": in_legend,
        "base": [bar.start for bar in bars],
        "x": [bar.end - bar.start for bar in bars],
        "y": [bar.row for bar in bars],
        "width": [bar.height for bar in bars],
        "marker": marker,
        "customdata": [[bar.label, bar.link] if bar.link else [bar.label] for bar in bars],
        "hovertemplate": f"%{{customdata[0]}}<br>from {when}<extra></extra>",
    }
