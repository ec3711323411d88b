"""Plotly figures of a sweep: learning curves, results in order, at rungs, and by hyperparameter. Pure."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from itertools import accumulate
from typing import Any, NamedTuple
from uuid import UUID

import plotly.graph_objects as go

from jobs_app.models import Sweep, SweepTrial
from sweeps.space import Choice, Parameter, Range, Space, Value
from web.pages.charts import OKABE_ITO, Figure

SHADES = ("#8254a8", "#5a76c8", "#21918c", "#4caf50", "#e0a100")
"""From the worst fifth of the trials to the best: the hues of viridis, neither as dark nor as light as a theme."""
MOST_CURVES = 200
OF_EACH_KIND = 15
"""Learning curves that are drawn: of the best trials, and of the newest ones."""
MOST_POINTS = 60
"""Of a learning curve."""
Curves = Mapping[UUID, Sequence[tuple[int, float]]]
"""Job → steps and values of the metric."""


def trials_with_curves(sweep: Sweep, trials: Sequence[SweepTrial]) -> list[SweepTrial]:
    """The trials whose learning curves are drawn, by number."""
    told = [(trial, score) for trial in trials if (score := _last_value(trial)) is not None]
    sign = -1 if sweep.goal == Sweep.Goal.MAXIMIZE else 1
    best = sorted(told, key=lambda pair: (sign * pair[1], pair[0].number))[:OF_EACH_KIND]
    numbers = {trial.number for trial, _ in best} | {trial.number for trial in trials[-OF_EACH_KIND:]}
    return [trial for trial in trials if trial.number in numbers]


def sweep_figures(
    sweep: Sweep, trials: Sequence[SweepTrial], space: Space, rungs: Sequence[int], curves: Curves
) -> dict[str, Figure]:
    """A figure for each view that has something to show."""
    ended = [trial for trial in trials if trial.value is not None]
    figures = {
        _name_of_curves(sweep, trials, curves): curves_figure(sweep, trials, curves),
        f"{sweep.metric} by trial": results_figure(sweep, ended) if ended else None,
        f"{sweep.metric} by hyperparameter": parallel_figure(sweep, ended, space) if len(ended) > 1 else None,
        f"{sweep.metric} at {'marks' if sweep.population else 'rungs'}": rungs_figure(sweep, trials, rungs)
        if len(rungs) > 1 and ended
        else None,
    }
    return {name: figure for name, figure in figures.items() if figure}


def _name_of_curves(sweep: Sweep, trials: Sequence[SweepTrial], curves: Curves) -> str:
    """It says so where trials are left out."""
    if len(trials) <= len(trials_with_curves(sweep, trials)):
        return f"{sweep.metric} by step"
    return f"{sweep.metric} by step: the best {OF_EACH_KIND} of {len(trials):,} trials and the newest {OF_EACH_KIND}"


def curves_figure(sweep: Sweep, trials: Sequence[SweepTrial], curves: Curves) -> Figure | None:
    """The learning curve of each trial that has one. A copy begins where its source was."""
    lines = [(trial, curves.get(trial.job_id, ())) for trial in trials]
    drawn = [(trial, line) for trial, line in lines if len(line) > 1]
    return _lines_figure(sweep, drawn, mode="lines", scale={}) if drawn else None


Line = tuple[SweepTrial, Sequence[tuple[int, float | None]]]
"""A trial with steps and values."""


def _lines_figure(sweep: Sweep, lines: Sequence[Line], *, mode: str, scale: dict[str, Any]) -> Figure:
    """A line for each trial, that of the best one thick. All others are one trace: a thousand would take seconds."""
    best = _ranked(sweep, [trial for trial, _ in lines if _last_value(trial) is not None])[-1:]
    others = [(trial, line) for trial, line in lines if trial not in best]
    traces = [
        go.Scatter(
            x=[step for _, line in some for step in (*(step for step, _ in line), None)],
            y=[value for _, line in some for value in (*(value for _, value in line), None)],
            text=[text for trial, line in some for text in (*[f"trial {trial.number}"] * len(line), "")],
            mode=mode,
            showlegend=False,
            line={"color": colour, "width": width},
        )
        for some, colour, width in (
            (others, OKABE_ITO[0], 1),
            ([(trial, line) for trial, line in lines if trial in best], OKABE_ITO[1], 3),
        )
    ]
    return _figure(traces, x={"title": {"text": "Step"}, **scale}, y={"title": {"text": sweep.metric}})


def _last_value(trial: SweepTrial) -> float | None:
    """At its end, else at the last rung or mark for which it trained itself."""
    return trial.value if trial.value is not None or not trial.own_values else trial.own_values[-1]


def results_figure(sweep: Sweep, ended: Sequence[SweepTrial]) -> Figure:
    """The value of each trial at its end, and the best so far of those that succeeded as a line."""
    better: Callable[[float, float], float] = max if sweep.goal == Sweep.Goal.MAXIMIZE else min
    succeeded = [trial for trial in ended if trial.state == SweepTrial.State.SUCCEEDED]
    others = [trial for trial in ended if trial.state != SweepTrial.State.SUCCEEDED]
    values = [trial.value for trial in succeeded if trial.value is not None]
    line = {"color": OKABE_ITO[1], "shape": "hv"}
    best = go.Scatter(
        x=[trial.number for trial in succeeded],
        y=list(accumulate(values, better)),
        mode="lines",
        name="best so far",
        line=line,
    )
    points = [_points("succeeded", OKABE_ITO[0], succeeded), _points("others", OKABE_ITO[3], others)]
    return _figure([*points, best], x={"title": {"text": "Trial"}}, y={"title": {"text": sweep.metric}})


def _points(name: str, colour: str, trials: Sequence[SweepTrial]) -> go.Scatter:
    x, y = [trial.number for trial in trials], [trial.value for trial in trials]
    return go.Scatter(x=x, y=y, mode="markers", name=name, marker={"color": colour, "size": 7}, showlegend=bool(trials))


def rungs_figure(sweep: Sweep, trials: Sequence[SweepTrial], rungs: Sequence[int]) -> Figure:
    """A line for each trial over the rungs that it has reached."""
    shown = [trial for trial in trials if trial.values][-MOST_CURVES:]
    lines = [(trial, list(zip(rungs, trial.values, strict=False))) for trial in shown]
    if sweep.population:
        return _lines_figure(sweep, lines, mode="lines+markers", scale={})
    ticks = {"type": "log", "tickvals": list(rungs), "ticktext": [f"{rung:,}" for rung in rungs]}
    return _lines_figure(sweep, lines, mode="lines+markers", scale=ticks)


def parallel_figure(sweep: Sweep, ended: Sequence[SweepTrial], space: Space) -> Figure:
    """Parallel coordinates: an axis for each hyperparameter and the metric, a line for each trial, the best on top."""
    axes = [*(_axis_of(name, parameter) for name, parameter in space.items()), _axis_of_metric(sweep, ended)]
    ranked = _thinned(_ranked(sweep, ended))
    traces = []
    for place, colour in enumerate(SHADES):
        part = ranked[len(ranked) * place // len(SHADES) : len(ranked) * (place + 1) // len(SHADES)]
        x = [n for _ in part for n in (*range(len(axes)), None)]
        y = [height for trial in part for height in (*(axis.height(_of(trial, axis.name)) for axis in axes), None)]
        name = ("the worst fifth", "", "", "", "the best fifth")[place]
        line = {"color": colour, "width": 1.5}
        traces.append(go.Scatter(x=x, y=y, mode="lines", name=name, showlegend=bool(name), line=line, hoverinfo="skip"))
    names = [f"{escape(axis.name or sweep.metric)}<br>{escape(axis.least)} to<br>{escape(axis.most)}" for axis in axes]
    x_axis = {
        "tickvals": list(range(len(axes))),
        "ticktext": names,
        "showgrid": True,
        "zeroline": False,
        "range": [-0.3, len(axes) - 0.7],  # or the texts of the last axis are cut off
        "ticklabeloverflow": "allow",  # or they are left out
    }
    return _figure(traces, x=x_axis, y={"visible": False, "range": [-0.03, 1.03]})


def _thinned(ranked: Sequence[SweepTrial]) -> Sequence[SweepTrial]:
    """Every n-th, so that few enough are drawn, and the best."""
    every = max(1, len(ranked) // MOST_CURVES)
    return ranked[(len(ranked) - 1) % every :: every] if ranked else ranked


class _Axis(NamedTuple):
    """An axis of parallel coordinates: its texts at both ends, and the height of a value from 0 to 1."""

    name: str
    least: str
    most: str
    height: Callable[[Value], float]


METRIC = ""
"""Name of the axis of the metric, which is no name of a hyperparameter."""


def _axis_of(name: str, parameter: Parameter) -> _Axis:
    match parameter:
        case Choice(values):
            places = {_text(value): place for place, value in enumerate(values)}
            most = max(len(values) - 1, 1)
            return _Axis(name, _text(values[0]), _text(values[-1]), lambda value: places.get(_text(value), 0) / most)
        case Range(least, most_value, log=log):
            scale: Callable[[float], float] = math.log if log else float
            span = scale(most_value) - scale(least)

            def height(value: Value) -> float:
                return (scale(float(least if value is None else value)) - scale(least)) / span

            return _Axis(name, f"{least:g}", f"{most_value:g}", height)


def _axis_of_metric(sweep: Sweep, ended: Sequence[SweepTrial]) -> _Axis:
    values = [trial.value for trial in ended if trial.value is not None]
    least, span = min(values), (max(values) - min(values)) or 1.0
    return _Axis(METRIC, f"{least:.4g}", f"{max(values):.4g}", lambda value: (float(value or 0) - least) / span)


def _of(trial: SweepTrial, axis: str) -> Value:
    params: Mapping[str, Value] = trial.params
    return trial.value if axis == METRIC else params.get(axis)


def _ranked(sweep: Sweep, ended: Iterable[SweepTrial]) -> list[SweepTrial]:
    """The worst first."""
    sign = 1 if sweep.goal == Sweep.Goal.MAXIMIZE else -1
    return sorted(ended, key=lambda trial: sign * (_last_value(trial) or 0.0))


def _text(value: Value) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _figure(traces: Sequence[go.Scatter], *, x: dict[str, Any], y: dict[str, Any]) -> Figure:
    common = {"automargin": True, "fixedrange": True}
    layout = {
        "template": "none",
        "xaxis": common | x,
        "yaxis": common | y,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        "margin": {"l": 56, "r": 24, "t": 16, "b": 40},
        "height": 320,
    }
    figure: Figure = go.Figure(list(traces), layout).to_plotly_json()
    figure["layout"].pop("template")
    return figure
