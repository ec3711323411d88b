"""Charts of a comparison; text from the trace is escaped, never markup.

Those named `…_figure` draw plain data, which the service stores, too; those named `…_chart` draw a comparison.
"""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from allocation.types import Floats
from simulation.results.comparison import Comparison, RunResult
from simulation.results.gantt import Bar, BarSeries, gantt_figure
from simulation.results.summary import seed_statistics
from simulation.results.time_units import HOURS, TimeUnit, unit_of
from simulation.results.timeline import POINTS

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000")
"""Colours of policies, distinguishable by colour-blind people."""
DASHES = ("solid", "dot", "dash", "longdash")
"""Line styles: beyond seven policies colours repeat with another dash."""
TYPE_COLOURS = ("#4E6E9E", "#C58B3B", "#6FA287", "#A66A8E", "#8C8C8C", "#B5B35C", "#7A5C48", "#7FC4D1")
"""Colours of GPU types, less saturated than those of policies."""

WIDE = 1000.0
"""Ratio of largest to smallest value from which a logarithmic axis shows powers of ten only."""

STEPS = 500
"""Points of a distribution's curve."""
HOUR_S = 3600.0
INK, LINE, PALE = "#16191d", "#e4e8ee", "#c9d1db"
MARK = "#6f7986"
"""Colour of what must be seen on light and on dark pages."""
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", "DejaVu Sans", sans-serif'
TALLEST_NAMES = 45
"""Most rows of a Gantt chart that are labelled."""

Figure = Any
Values = Sequence[float] | Floats
Curve = tuple[Values, Values]
"""Values of x and of y."""
Lines = Mapping[str, Mapping[str, Any]]
"""Policy → the style of its line."""


def lines_of(policies: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Line style of each policy, the same in every chart."""
    n = len(OKABE_ITO)
    return {p: {"color": OKABE_ITO[i % n], "dash": DASHES[i // n % len(DASHES)]} for i, p in enumerate(policies)}


def averages_chart(comparison: Comparison) -> Figure:
    """Chart of the mean completion time by policy, with a dot for every seed."""
    of_policies = seed_statistics(comparison)
    means = {policy: figures["avg_jct_h"].mean for policy, figures in of_policies.items()}
    figure, unit = averages_figure(means, lines_of(comparison.policies)), unit_of(means.values())
    for policy in of_policies:
        runs = [unit.per_hour * outcome.figures["avg_jct_h"] for outcome in comparison.of_policy(policy)]
        if len(runs) > 1:
            seeds = [seed for seed in comparison.seeds if (policy, seed) in comparison.outcomes]
            figure.add_scatter(
                x=runs,
                y=[escape(policy)] * len(runs),
                mode="markers",
                marker={"color": INK, "size": 6, "opacity": 0.6},
                customdata=seeds,
                hovertemplate=f"seed %{{customdata}}: %{{x:.4g}} {unit.name}<extra></extra>",
            )
    return figure


def averages_figure(means: Mapping[str, float | None], lines: Lines) -> Figure:
    """Figure of the mean completion time, told in hours, by policy."""
    figure, unit = go.Figure(), unit_of(means.values())
    for policy, mean in means.items():
        bar = {"color": lines[policy]["color"], "opacity": 0.85}
        x = None if mean is None else unit.per_hour * mean
        text = "" if x is None else f"{x:.4g} {unit.name}"
        figure.add_bar(x=[x], y=[escape(policy)], orientation="h", marker=bar, text=[text], hoverinfo="skip")
    figure.update_traces(textposition="inside", insidetextanchor="start", selector={"type": "bar"})
    figure.update_layout(showlegend=False, bargap=0.35, height=70 + 44 * max(len(means), 1), hovermode="closest")
    figure.update_xaxes(title_text=f"Average job completion time, {unit.plural}", rangemode="tozero")
    figure.update_yaxes(autorange="reversed", ticklabelstandoff=6, gridcolor="rgba(0,0,0,0)")
    return _dressed(figure).update_layout(margin_t=12)


def jct_chart(comparison: Comparison) -> Figure:
    """Chart of the cumulative distribution of completion times."""
    curves = _distributions(comparison, lambda outcome: outcome.jobs.jct_s / HOUR_S)
    return jct_figure(curves, lines_of(comparison.policies))


def jct_figure(curves: Mapping[str, Curve], lines: Lines) -> Figure:
    """Figure of cumulative distributions of completion times, told in hours, by policy."""
    unit = unit_of(x[-1] for x, _ in curves.values())
    scaled = {policy: (_scaled(x, unit), y) for policy, (x, y) in curves.items()}
    figure = _distribution_figure(scaled, lines, unit=f" {unit.name}")
    figure.update_xaxes(title_text=f"Job completion time, {unit.plural} (logarithmic)")
    return _dressed(figure)


def _scaled(hours: Values, unit: TimeUnit) -> Values:
    return hours if unit == HOURS else unit.per_hour * np.asarray(hours)


def rho_chart(comparison: Comparison) -> Figure:
    """Chart of the cumulative distribution of finish-time fairness rho."""
    curves = _distributions(comparison, lambda outcome: outcome.jobs.rho)
    return rho_figure(curves, lines_of(comparison.policies))


def rho_figure(curves: Mapping[str, Curve], lines: Lines) -> Figure:
    """Figure of cumulative distributions of finish-time fairness rho by policy."""
    figure = _distribution_figure(curves, lines, unit="")
    figure.add_vline(x=1, line={"color": MARK, "width": 1, "dash": "dot"})
    # On a logarithmic axis plotly places a text by the logarithm: 0 is the place of 1.
    fair = {"x": 0, "y": 0.02, "yref": "paper", "text": "fair share", "xanchor": "left", "yanchor": "bottom"}
    figure.add_annotation(**fair, showarrow=False, font_size=12, xshift=4)
    figure.update_xaxes(title_text="Finish-time fairness rho (logarithmic)")
    return _dressed(figure)


def _distributions(comparison: Comparison, values_of: Callable[[RunResult], Floats]) -> dict[str, Curve]:
    """Cumulative distribution of the positive values of each policy's jobs, of all seeds together."""
    curves: dict[str, Curve] = {}
    for policy in comparison.policies:
        found = [values_of(outcome) for outcome in comparison.of_policy(policy)]
        values = np.concatenate(found) if found else np.zeros(0)
        values = values[values > 0]
        if values.size:
            share = np.linspace(0, 1, min(STEPS, len(values)))
            curves[policy] = _rounded(np.quantile(values, share)), _rounded(share)
    return curves


def _distribution_figure(curves: Mapping[str, Curve], lines: Lines, *, unit: str) -> Figure:
    figure = go.Figure()
    for policy, (x, y) in curves.items():
        figure.add_scatter(
            x=x,
            y=y,
            name=escape(policy),
            mode="lines",
            line={**lines[policy], "width": 2.2},
            hovertemplate=f"%{{y:.0%}} within %{{x:.4g}}{unit}",
        )
    widest = max((x[-1] / x[0] for x, _ in curves.values() if x[0] > 0), default=1.0)
    figure.update_xaxes(type="log", dtick=1 if widest > WIDE else "D2")
    figure.update_yaxes(title_text="Share of the jobs", tickformat=".0%", range=[0, 1.02])
    figure.update_layout(height=400 + 10 * max(0, len(curves) - 4), hovermode="y")
    return figure


def utilization_chart(comparison: Comparison) -> Figure:
    """Chart of utilisation over time, of all GPUs and by type, means over seeds."""
    outcomes = list(comparison.outcomes.values())
    gpu_types = list(outcomes[0].gpu_types)
    rows = ["All GPUs", *(f"{escape(t)} · {int(c)} GPUs" for t, c in zip(gpu_types, outcomes[0].capacity, strict=True))]
    edges_s = np.linspace(0, max(outcome.whole_s for outcome in outcomes), POINTS + 1)
    hours = _rounded((edges_s[:-1] + edges_s[1:]) / 2 / HOUR_S)
    curves = {
        policy: [(hours, _rounded(part)) for part in _busy_parts(comparison.of_policy(policy), edges_s)]
        for policy in comparison.policies
        if comparison.of_policy(policy)
    }
    return utilization_figure(curves, lines_of(comparison.policies), rows if len(gpu_types) > 1 else rows[1:])


def utilization_figure(curves: Mapping[str, Sequence[Curve]], lines: Lines, rows: Sequence[str]) -> Figure:
    """Figure of busy parts of GPUs over hours: a chart below the other for each of the rows, HTML, with its curve."""
    space = min(0.09, 0.5 / len(rows))
    unit = unit_of(x[-1] for of_rows in curves.values() for x, _ in of_rows if len(x))
    figure = make_subplots(len(rows), 1, shared_xaxes=True, vertical_spacing=space, subplot_titles=rows)
    for policy, of_rows in curves.items():
        for place, (x, y) in enumerate(of_rows, 1):
            figure.add_scatter(
                x=_scaled(x, unit),
                y=y,
                row=place,
                col=1,
                name=escape(policy),
                legendgroup=escape(policy),
                showlegend=place == 1,
                mode="lines",
                line={**lines[policy], "width": 1.6},
                hovertemplate="%{y:.0%}",
            )
    figure.update_yaxes(tickformat=".0%", range=[-0.02, 1.05], dtick=0.5 if len(rows) > 2 else 0.25)
    figure.update_xaxes(title_text=f"{unit.plural.capitalize()} since the first arrival", row=len(rows))
    figure.update_annotations(font_size=13, x=0, xanchor="left")
    figure.update_layout(height=140 + 170 * len(rows), hovermode="x unified")
    return _dressed(figure).update_layout(legend_y=-60 / (140 + 170 * len(rows)), legend_yanchor="top")


def _busy_parts(runs: Sequence[RunResult], edges_s: Floats) -> list[Floats]:
    """Utilisation over time, means over runs: of all GPUs, then of each type if there are several."""
    capacity = np.maximum(runs[0].capacity, 1)
    busy = np.mean([_on(edges_s, run) for run in runs], axis=0)
    of_types = list(busy / capacity[:, None])
    return [busy.sum(axis=0) / capacity.sum(), *of_types] if len(of_types) > 1 else of_types


def _on(edges_s: Floats, run: RunResult) -> Floats:
    """Busy GPUs of a run, resampled to other time intervals."""
    own_s = np.linspace(0, run.whole_s, run.busy.shape[1] + 1)
    spent = np.hstack([np.zeros((len(run.busy), 1)), np.cumsum(run.busy, axis=1)]) * own_s[1]
    until = np.array([np.interp(edges_s, own_s, of_type) for of_type in spent])
    mean: Floats = np.diff(until, axis=1) / np.diff(edges_s)
    return mean


def gantt_chart(outcome: RunResult) -> Figure:
    """Gantt chart of the sampled jobs by arrival: waiting (pale) and running by GPU type."""
    plain = [outcome.jobs.names[row] for row in outcome.rows.tolist()]
    names, few = [escape(name) for name in plain], len(plain) <= TALLEST_NAMES
    unit = unit_of([outcome.whole_s / HOUR_S])
    runs = [_runs_on(outcome, j, names, unit) for j in range(len(outcome.gpu_types))]
    series = [_lives(outcome, names, unit), *runs]
    ticks = {float(row): escape(_cut(name)) for row, name in enumerate(plain)} if few else {}
    figure = go.Figure(gantt_figure(series, len(names), ticks, when=f"%{{base:.4g}} {unit.name}"))
    figure.update_xaxes(title_text=f"{unit.plural.capitalize()} since the first arrival", rangemode="tozero")
    if not few:
        figure.update_yaxes(showticklabels=False, title_text=f"{len(names)} jobs, by arrival")
    return _dressed(figure)


def _lives(outcome: RunResult, names: Sequence[str], unit: TimeUnit) -> BarSeries:
    """From arrival to completion; a job that did not finish has no length."""
    jobs, rows, unit_s = outcome.jobs, outcome.rows, HOUR_S / unit.per_hour
    arrival = ((jobs.arrival_s[rows] - outcome.began_s) / unit_s).tolist()
    lives = (np.nan_to_num(jobs.jct_s[rows], nan=0.0) / unit_s).tolist()
    bars = [
        Bar(
            _single(start),
            _single(start + life),
            row,
            f"<b>{name}</b><br>{life:.4g} {unit.name} to its completion",
            height=0.22,
        )
        for row, (name, start, life) in enumerate(zip(names, arrival, lives, strict=True))
    ]
    return BarSeries("from arrival to completion", PALE, bars)


def _runs_on(outcome: RunResult, j: int, names: Sequence[str], unit: TimeUnit) -> BarSeries:
    """Intervals in which jobs ran on GPU type j."""
    began_s, unit_s = outcome.began_s, HOUR_S / unit.per_hour
    place = {row: i for i, row in enumerate(outcome.rows.tolist())}
    gpu_type = escape(outcome.gpu_types[j])
    bars = [
        Bar(
            _single((span.began_s - began_s) / unit_s),
            _single((span.ended_s - began_s) / unit_s),
            place[span.row],
            f"<b>{names[place[span.row]]}</b><br>{int(outcome.configuration_gpus[span.configuration])} of {gpu_type}"
            f" for {(span.ended_s - span.began_s) / unit_s:.4g} {unit.name}",
        )
        for span in outcome.spans
        if outcome.configuration_type[span.configuration] == j
    ]
    return BarSeries(gpu_type, TYPE_COLOURS[j % len(TYPE_COLOURS)], bars)


def _single(value: float) -> float:
    """Six digits, which is a second in a month and halves the file."""
    return float(f"{value:.6g}")


def _cut(name: str, most: int = 28) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _rounded(values: Floats) -> Floats:
    """Round to single precision, which halves the file."""
    rounded: Floats = values.astype(np.float32)
    return rounded


def _dressed(figure: Figure) -> Figure:
    """Common layout of all charts."""
    axis = {"gridcolor": LINE, "linecolor": PALE, "zerolinecolor": PALE, "automargin": True, "title_font_size": 13}
    figure.update_layout(
        template="none",
        font={"family": FONT, "size": 13, "color": INK},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 70, "r": 20, "t": 44, "b": 56},
        legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "yref": "paper"},
        hoverlabel={"font": {"family": FONT}},
    )
    figure.update_xaxes(**axis)
    figure.update_yaxes(**axis)
    return figure
