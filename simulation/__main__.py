"""`python -m simulation`: run a trace, and tell how it went."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from allocation.parameters import InvalidParameter
from simulation.cluster import Cluster, InvalidCluster
from simulation.engine import Simulation, Stalled
from simulation.figures import figures_of
from simulation.formats import FORMATS
from simulation.gpu_types import UnknownGpuType
from simulation.jobs import Jobs
from simulation.setting import (
    RULES,
    RULES_OF,
    InvalidSetting,
    Setting,
    read_prices,
    read_throughputs,
    read_trace,
)
from simulation.state import State
from simulation.throughputs import InvalidTable, UnknownWorkload
from simulation.trace import InvalidTrace

REFUSED = 2
"""The exit code for what cannot be run as it is asked for."""

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def simulate() -> None:
    """Traces of jobs, run through the same decisions as the service's."""


@app.command()
def run(
    trace: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The trace; .gz is read, too.")],
    *,
    format_name: Annotated[str, typer.Option("--format", help=f"Whose columns it has: {', '.join(FORMATS)}.")],
    cluster: Annotated[str, typer.Option(help="v100=8x4,p100=16: eight nodes of four V100, sixteen of one P100.")],
    policy: Annotated[str, typer.Option(help="NAME, or NAME:parameter=value,…")] = "max_min_fairness",
    seed: Annotated[int, typer.Option(help="Of everything that is left to chance.")] = 0,
    round_s: Annotated[float, typer.Option("--round", min=1, help="Seconds.")] = 360,
    rules: Annotated[
        str | None,
        typer.Option(help=f"How rounds come about: {', '.join(RULES)}. Gavel's format brings its own."),
    ] = None,
    shuffle_types: Annotated[
        bool, typer.Option("--shuffle-types", help="Gavel's rules: fill types in another order each round.")
    ] = False,
    restart_s: Annotated[float, typer.Option("--restart", min=0, help="Seconds lost by whoever goes on.")] = 0,
    mixed_gangs: Annotated[
        bool, typer.Option("--mixed-gangs", help="A gang may be on two GPU types, as fast as on the slower.")
    ] = False,
    failures: Annotated[
        str | None, typer.Option(help="720:4: a node is up for 720 hours and down for four, on the mean.")
    ] = None,
    checkpoint_s: Annotated[
        float, typer.Option("--checkpoint", min=0, help="Seconds from one checkpoint to the next.")
    ] = 0,
    throughputs: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A table of rates in Gavel's JSON.")
    ] = None,
    prices: Annotated[str | None, typer.Option(help="v100=2.48,…: dollars per GPU and hour.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Count lines that cannot be read.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run a trace on a cluster under a policy."""
    setting = Setting.read(
        policy=policy,
        rules=rules or RULES_OF.get(format_name, "service"),
        round_s=round_s,
        seed=seed,
        shuffle_types=shuffle_types,
        mixed_gangs=mixed_gangs,
        failures=failures,
        checkpoint_s=checkpoint_s,
    )
    jobs = read_trace(trace, format_name, skip_bad=skip_bad)
    machines, rounds = setting.rounds(Cluster.parse(cluster))
    paid = read_prices(prices, machines.gpu_types)
    truth = read_throughputs(throughputs, format_name)
    rates = Jobs.of(jobs.jobs, machines, truth, mixed_gangs=setting.mixed_gangs)
    simulation = Simulation(State.before(rates, machines, paid or [0.0] * len(machines.gpu_types)), rounds, restart_s)
    wall_s = _run(simulation, quiet=as_json)
    figures = figures_of(
        simulation.state, machines.gpu_types, decided_s=simulation.decided_s, wall_s=wall_s, prices=paid
    )
    _tell({**figures, "skipped": jobs.skipped}, as_json=as_json)


def _run(simulation: Simulation, *, quiet: bool) -> float:
    """Run to the end, and give how many seconds it took."""
    began = perf_counter()
    columns = (TextColumn("jobs done"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=quiet, transient=True) as progress:
        task = progress.add_task("", total=int(simulation.state.jobs.runnable.sum()))
        simulation.watch = lambda _: progress.update(task, completed=simulation.done)
        simulation.run()
    return perf_counter() - began


def _tell(figures: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(figures) + "\n")
        return
    table = Table(show_header=False)
    for name, value in figures.items():
        inner = value.items() if isinstance(value, dict) else [("", value)]
        for part, number in inner:
            table.add_row(f"{name} {part}".strip(), _words(number))
    Console().print(table)


def _words(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main(words: Sequence[str] | None = None) -> None:
    """Do what the words, or those of the command line, say; leave with 2 and a reason where they mean nothing."""
    try:
        app(words)
    except (
        InvalidTrace,
        InvalidCluster,
        InvalidSetting,
        InvalidTable,
        InvalidParameter,
        UnknownWorkload,
        UnknownGpuType,
        Stalled,
    ) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(REFUSED)


if __name__ == "__main__":
    main()
