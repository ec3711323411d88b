"""Charts of a lab run's result: those of the simulator's report, from the figures that are kept. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import plotly.graph_objects as go

from simulation.results.charts import averages_figure, jct_figure, rho_figure, utilization_figure
from simulation.results.summary import Column
from simulation.results.time_units import format_duration
from web.pages.charts import OKABE_ITO, Figure, line_of

MOST_BARS = 40
"""Of a chart of teams; the table has all."""
BETTER, WORSE = OKABE_ITO[2], OKABE_ITO[5]
COMPARED = (
    "avg_jct_h",
    "p99_jct_h",
    "queueing_h",
    "rho.mean",
    "restarts_per_job",
    "overhead",
    "utilization",
    "energy_kwh",
)


@dataclass(frozen=True)
class Chart:
    """A figure with its title, and the same figures as a table."""

    name: str
    title: str
    figure: Figure
    heads: Sequence[str] = field(default_factory=list)
    rows: Sequence[Sequence[Any]] = field(default_factory=list)


def figure_charts(named: Mapping[str, Mapping[str, Any]], columns: Sequence[Column]) -> list[Chart]:
    """Mean completion times, and changes of the other figures from the current policy's; the table above has them."""
    means = {name: one["figures"]["avg_jct_h"] for name, one in named.items()}
    charts = [Chart("averages", "Mean job completion time", _plain(averages_figure(means, _lines(named))))]
    if len(named) == 1:
        return charts
    return [*charts, Chart("changes", "Change from the current policy", _changes(named, columns))]


def _changes(named: Mapping[str, Mapping[str, Any]], columns: Sequence[Column]) -> Figure:
    base, *others = named
    headings = {column.figure: column.title for column in columns if column.figure in COMPARED}
    known = {figure: value for figure in headings if (value := named[base]["figures"].get(figure))}
    figure, lines = go.Figure(), _lines(named)
    for name in others:
        changes = [_change(named[name]["figures"].get(one), value) for one, value in known.items()]
        x = [headings[one] for one in known]
        figure.add_bar(x=x, y=changes, name=escape(name), marker={"color": lines[name]["color"]})
    figure.update_traces(hovertemplate="%{y:+.1%}")
    figure.update_yaxes(tickformat="+,.0%", zeroline=True, automargin=True)
    return _plain(figure.update_layout(**_frame(380), hovermode="x unified", barmode="group"))


def _change(value: float | None, base: float) -> float | None:
    return None if value is None else value / base - 1


def curve_charts(named: Mapping[str, Mapping[str, Any]], quantiles: Sequence[int]) -> list[Chart]:
    """Distributions of completion times and rho, and busy GPUs over time."""
    lines = _lines(named)
    busy = {name: [_over_time(one)] for name, one in named.items()}
    of_jct, of_rho = ({name: one[kind] for name, one in named.items()} for kind in ("jct_h", "rho"))
    heads = ["Jobs, %", *named]
    of_times = {name: [format_duration(3600 * value) for value in values] for name, values in of_jct.items()}
    of_ratios = {name: [f"{value:.3g}" for value in values] for name, values in of_rho.items()}
    return [
        Chart(
            "jct",
            "Job completion times",
            _plain(jct_figure(_positive(of_jct), lines)),
            heads,
            _at(of_times, quantiles),
        ),
        Chart(
            "rho",
            "Finish-time fairness rho",
            _plain(rho_figure(_positive(of_rho), lines)),
            heads,
            _at(of_ratios, quantiles),
        ),
        Chart(
            "busy",
            "GPUs busy over time",
            _plain(utilization_figure(busy, lines, ["All GPUs"])),
            ["Interval", *named],
            _intervals(named),
        ),
    ]


def _positive(of_policies: Mapping[str, Sequence[float]]) -> dict[str, tuple[list[float], list[float]]]:
    """Quantiles as curves on a logarithmic axis."""
    curves = {}
    for name, values in of_policies.items():
        points = [(value, place / (len(values) - 1)) for place, value in enumerate(values) if value > 0]
        if points:
            curves[name] = [x for x, _ in points], [y for _, y in points]
    return curves


def _at(of_policies: Mapping[str, Sequence[str]], quantiles: Sequence[int]) -> list[list[Any]]:
    return [[q, *(values[q] if values else "-" for values in of_policies.values())] for q in quantiles]


def _over_time(curves: Mapping[str, Any]) -> tuple[list[float], list[float]]:
    step_h = curves["hours"] / len(curves["busy"])
    return [round((place + 0.5) * step_h, 6) for place in range(len(curves["busy"]))], curves["busy"]


def _intervals(named: Mapping[str, Mapping[str, Any]]) -> list[list[Any]]:
    """Busy part in each interval of a policy's own simulated time."""
    columns = [
        [f"{format_duration(3600 * x)}: {y:.0%}" for x, y in zip(*_over_time(one), strict=True)]
        for one in named.values()
    ]
    return [[place, *row] for place, row in enumerate(zip(*columns, strict=True), 1)]


def group_chart(name: str, changes: Mapping[str, float], *, title: str) -> Chart:
    """Changes of mean completion times of teams or job sizes, the first of them at the top."""
    shown = dict(list(changes.items())[:MOST_BARS])
    colours = [BETTER if change <= 0 else WORSE for change in shown.values()]
    bar = go.Bar(
        x=list(shown.values()),
        y=[escape(label) for label in shown],
        orientation="h",
        marker={"color": colours},
        hovertemplate="%{y}: %{x:+.1%}<extra></extra>",
    )
    figure = go.Figure([bar], _frame(90 + 26 * len(shown)))
    figure.update_xaxes(tickformat="+.0%", title_text="Change of the mean completion time")
    figure.update_yaxes(autorange="reversed", automargin=True, type="category")
    return Chart(name, title, _plain(figure))


def _lines(named: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Style of each policy, the same in every chart, visible on light and dark pages."""
    return {name: line_of(place) for place, name in enumerate(named)}


def _frame(height: int) -> dict[str, Any]:
    return {"template": "none", "height": height, "margin": {"l": 64, "r": 16, "t": 16, "b": 48}}


def _plain(figure: Any) -> Figure:
    plain: Figure = figure.to_plotly_json()
    plain["layout"].pop("template", None)
    return plain
