"""Result of a lab run as tables, and the figures beside them. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from insight_app.lab.results import COMPARED
from simulation.results.summary import COLUMNS, Column, Number
from simulation.results.time_units import HOURS, format_duration
from web.pages.lab_charts import Chart, curve_charts, figure_charts, group_chart

SHOWN = (
    *(column for column in COLUMNS if column.figure in ("completed", "avg_jct_h", "p99_jct_h", "queueing_h")),
    *(column for column in COLUMNS if column.figure in ("makespan_h", "utilization", "restarts_per_job")),
    Column("overhead", "Overhead", "%", "less"),
    *(column for column in COLUMNS if column.figure in ("rho.mean", "rho.p99")),
    Column("energy_kwh", "Energy", "kWh", "less"),
    Column("cannot_run", "Jobs that fit nowhere", better="less"),
)
"""Figures of the comparison, in the order of its rows."""
QUANTILES = (10, 25, 50, 75, 90, 99, 100)
"""Per cent of the jobs, in the tables beside distributions."""


class Cell(NamedTuple):
    """A figure of a column in words; its relative change from the current policy; whether it is the best of its row."""

    name: str
    words: str
    change: float | None
    best: bool


class ErrorRow(NamedTuple):
    """An actual figure, the simulated one, and its relative error."""

    heading: str
    really: str
    simulated: str
    error: float | None


@dataclass(frozen=True)
class Groups:
    """Teams or job sizes of a policy, with their changes, as rows and as a chart."""

    kind: str
    rows: Sequence[tuple[str, Mapping[str, Any]]]
    chart: Chart


@dataclass(frozen=True)
class Simulated:
    """A simulated policy, with the data that are shown for it alone."""

    row: Mapping[str, Any]
    """Of `policies` of the result."""
    policy: str
    failed: str
    groups: Sequence[Groups]


@dataclass(frozen=True)
class ShownResult:
    """Result as shown on the page."""

    result: Mapping[str, Any]
    errors: Sequence[ErrorRow]
    names: Sequence[str]
    """Heads of the columns of the comparison."""
    figures: Sequence[tuple[str, Sequence[Cell]]]
    charts: Sequence[Chart]
    curves: Sequence[Chart]
    policies: Sequence[Simulated]


def shown_result(result: Mapping[str, Any]) -> ShownResult:
    """Tables and charts of the result of a run that is done."""
    named = simulations(result)
    columns = {"really": {"figures": result["actual"]}, **named} if result["actual"] else named
    return ShownResult(
        result=result,
        errors=list(_errors(result)) if result["actual"] else [],
        names=list(columns),
        figures=[(_heading(one), _cells(one, columns, result)) for one in SHOWN if _is_told(one, columns)],
        charts=figure_charts(named, SHOWN),
        curves=curve_charts({name: one["curves"] for name, one in named.items()}, QUANTILES),
        policies=[_simulated(place, one) for place, one in enumerate(result["policies"])],
    )


def simulations(result: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Figures and curves by the name of the simulated policy, the present one first."""
    present = result["present"]
    done = {one["policy"]: one for one in result["policies"] if one["figures"]}
    return {f"{present['policy']} (present)": present, **done}


def _errors(result: Mapping[str, Any]) -> Iterable[ErrorRow]:
    actual, present = result["actual"], result["present"]
    for column in COLUMNS:
        if (name := column.figure) in COMPARED:
            words = _words(column, actual[name]), _words(column, present["figures"][name])
            yield ErrorRow(_heading(column), *words, present["errors"][name])


def _heading(column: Column) -> str:
    """With its unit, unless it is a time: that is in words."""
    return column.title if column.unit == HOURS.name else column.heading


def _words(column: Column, value: Number) -> str:
    return column.words(value) if value is None or column.unit != HOURS.name else format_duration(3600 * value)


def _is_told(column: Column, columns: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the figure differs from 0 in some column."""
    return any(one["figures"].get(column.figure) for one in columns.values())


def _cells(column: Column, columns: Mapping[str, Mapping[str, Any]], result: Mapping[str, Any]) -> Sequence[Cell]:
    base = result["present"]["figures"].get(column.figure)
    values = {name: one["figures"].get(column.figure) for name, one in columns.items()}
    best = _best(column, [value for name, value in values.items() if name != "really"])
    return [
        Cell(
            name,
            _words(column, value),
            value / base - 1 if value is not None and base and name != "really" and value != base else None,
            value is not None and value == best and name != "really",
        )
        for name, value in values.items()
    ]


def _best(column: Column, values: Sequence[Number]) -> Number:
    """The best value; None if no direction is better, or all are equal."""
    known = [value for value in values if value is not None]
    if column.better is None or len(set(known)) < 2:
        return None
    return min(known) if column.better == "less" else max(known)


def _simulated(place: int, one: Mapping[str, Any]) -> Simulated:
    if one["failed"]:
        return Simulated(one, one["policy"], one["failed"], ())
    return Simulated(one, one["policy"], "", [_groups(f"groups-{place}", one, kind) for kind in ("team", "size")])


def _groups(name: str, one: Mapping[str, Any], kind: str) -> Groups:
    rows = [(group[kind] or "no team", group) for group in one[f"{kind}s"]]
    changes = {label: group["change"] for label, group in rows if group["change"] is not None}
    return Groups(kind, rows, group_chart(f"{name}-{kind}", changes, title=f"{one['policy']}, by {kind}"))
