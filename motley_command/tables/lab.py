"""Tables of runs of the policy lab."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from motley_client.responses import LabRun, NodeSaving, NodeSavings, SimulatedSaving
from motley_command.tables.format import Cell, age, hours, number, table, text

FIGURES = {
    "avg_jct_h": "MEAN JCT",
    "p99_jct_h": "P99 JCT",
    "queueing_h": "NOT RUNNING",
    "makespan_h": "MAKESPAN",
    "utilization": "GPUS BUSY",
    "restarts_per_job": "RESTARTS",
    "overhead": "OVERHEAD",
    "rho.mean": "MEAN RHO",
    "energy_kwh": "ENERGY KWH",
}
WORDS = """\
JCT: job completion time, from submission to end; P99 JCT: that of the slowest of 100 jobs. NOT RUNNING: mean time of a
job in the queue, before and between its attempts. MAKESPAN: until all have ended. OVERHEAD: part of the GPU time for
restarts. RHO: finish-time fairness, the time of a job over that with an equal part of the cluster: up to 1 is fair."""
MANIFOLD = 2.0
"""Change from which a multiple is easier to read than a percentage."""


def lab_runs_table(runs: Iterable[LabRun], *, now: datetime) -> RenderableType:
    headings = ("RUN", "STATE", "DONE", "DAYS", "POLICIES", "BY", "AGE")
    rows = [
        (
            str(run["id"]),
            run["state"],
            progress(run),
            str(run["days"] or "trace"),
            ", ".join(run["policies"]),
            run["owner"],
            since,
        )
        for run, since in ((run, age(run["created_at"], now)) for run in runs)
    ]
    return table(headings, rows, empty="There are no runs: start one with motley lab run --policy NAME.")


NODE_HEADINGS = ("NODE", "GPUS", "PRICE", "ONE MORE SAVES", "SIMULATED", "ONE LESS COSTS", "SIMULATED")
NODE_WORDS = """\
PRICE: hours that others waited per GPU-hour, the mean of the last week. Hours of waiting are those of a week, added up
over all jobs."""


def node_savings_table(found: NodeSavings) -> RenderableType:
    """A line for each GPU type, and what the figures are; or why there are none."""
    if not found["types"]:
        return text(found["why_none"])
    return Group(table(NODE_HEADINGS, [_node_row(one) for one in found["types"]], empty=""), Text(""), Text(NODE_WORDS))


def _node_row(one: NodeSaving) -> Sequence[Cell]:
    return (
        f"{one['node_gpus']} {one['gpu_type']}",
        number(one["gpus"], "{}"),
        number(one["price"], "{:.2f}"),
        number(one["saved_h"], "{:.1f} h"),
        _simulated(one["simulated_more"], 1),
        number(one["cost_h"], "{:.1f} h"),
        _simulated(one["simulated_less"], -1),
    )


def _simulated(saving: SimulatedSaving | None, sign: int) -> str:
    """`38.0 h (run 3)`; of some jobs alone `38.0 h (run 3, teams of ada)`."""
    if saving is None:
        return "-"
    whose = f", teams of {who}" if (who := saving.get("only_teams_of")) else ""
    return f"{sign * saving['saved_h']:.1f} h (run {saving['lab_run']}{whose})"


def progress(run: LabRun) -> str:
    return f"{run['done'] / run['total']:.0%}" if run["total"] else "-"


def lab_run_details(run: LabRun) -> RenderableType:
    """What really happened, its simulation and the policies, teams and job sizes that gain and lose, the summary."""
    result = run.get("result")
    if not result:
        return Text(f"Run {run['id']} is {run['state']} ({progress(run)}). {run['message']}".rstrip())
    rows = [
        *([("really", *figure_cells(result["actual"]))] if result["actual"] else []),
        (f"{result['present']['policy']} simulated", *figure_cells(result["present"]["figures"])),
        *((one["policy"], *figure_cells(one["figures"] or {})) for one in result["policies"]),
    ]
    failed = [Text(f"{one['policy']}: {one['failed']}") for one in result["policies"] if one["failed"]]
    return Group(
        table(("POLICY", *FIGURES.values()), rows, empty=""),
        table(("POLICY", "TEAM", "JOBS", "MEAN JCT", "CHANGE"), _changes(result, "team"), empty=""),
        table(("POLICY", "GPUS OF A JOB", "JOBS", "MEAN JCT", "CHANGE"), _changes(result, "size"), empty=""),
        *failed,
        Text(result["summary"]),
        Text(WORDS),
    )


def _changes(result: Mapping[str, Any], kind: str) -> list[tuple[Cell, ...]]:
    """Rows of the groups of each policy, by `team` or `size`."""
    return [
        (one["policy"], group[kind], str(group["jobs"]), hours(group["avg_jct_h"]), _change(group["change"]))
        for one in result["policies"]
        for group in one.get(f"{kind}s", ())
    ]


def figure_cells(figures: Mapping[str, float | None]) -> tuple[Cell, ...]:
    """Cells below the headings of `FIGURES`; hours in the unit that suits them."""
    return tuple((hours if name.endswith("_h") else number)(figures.get(name)) for name in FIGURES)


def _change(change: float | None) -> str:
    """With its sign; from three times as much on as a multiple."""
    if change is None:
        return "-"
    return f"{change:+.0%}" if change < MANIFOLD else f"{1 + change:.3g} x"
