"""Terminal output of the commands."""

import json
import os
import sys
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column as Heading
from rich.table import Table

from simulation.clock.process_pool import RunUpdate
from simulation.results.bound import TraceBound
from simulation.results.comparison import Comparison, RunResult
from simulation.results.summary import UTILIZATION_NOTE, Column, SeedStatistics, best, seed_statistics, told_columns
from simulation.scenario.generator_options import SIA, GeneratorOptions
from simulation.traces.trace import Trace

PROGRAM = os.environ.get("MOTLEY_PROGRAM", "python -m simulation")
"""Name of the program in messages; `motley simulate` calls this command."""

PLAIN_WIDTH = 300
"""Width of the output where it is not a terminal."""


BOUND_MEANINGS = {
    "jobs": "jobs of the trace",
    "cannot_run": "of these, jobs that can never run on the cluster; they do not count in what follows",
    "avg_jct_h": "the bound: mean time from a job's arrival to its completion, hours",
    "makespan_h": "the bound: time from the first arrival to the last completion, hours",
    "alone_jct_h": "mean completion time if each job were alone on the cluster, hours: a simpler, lower bound",
    "relaxed_jct_h": "what the relaxed program that gives the bound reaches, hours",
    "gap": "how far avg_jct_h is below relaxed_jct_h, as a part: an exact solution lifts it by no more",
    "intervals": "intervals into which that program divides time; more make the bound higher",
    "wall_s": "seconds that the computation took",
}


def progress(*, quiet: bool) -> Progress:
    """Progress bars of runs, on stderr, so that results on stdout stay clean."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    off = quiet or not sys.stderr.isatty()
    return Progress(*columns, console=Console(stderr=True), disable=off, transient=True)


def tell_figures(figures: Mapping[str, Any], notes: Sequence[str], *, as_json: bool) -> None:
    """Print the metrics of one run, and notes on how they came about."""
    if as_json:
        sys.stdout.write(json.dumps({**figures, "notes": list(notes)}) + "\n")
        return
    table = Table(show_header=False)
    for name, value in figures.items():
        inner = value.items() if isinstance(value, dict) else [("", value)]
        for part, number in inner:
            table.add_row(f"{name} {part}".strip(), _words(number))
    Console().print(table)
    Console(soft_wrap=True).print(UTILIZATION_NOTE)
    for note in notes:
        Console(soft_wrap=True).print(note, markup=False, highlight=False)


def tell_bound(bound: TraceBound, *, as_json: bool) -> None:
    """Print the bounds of a trace."""
    if as_json:
        sys.stdout.write(json.dumps(bound.figures) + "\n")
        return
    table = Table(show_header=False)
    for name, value in bound.figures.items():
        table.add_row(name, _words(value), BOUND_MEANINGS[name])
    out = Console(soft_wrap=True, width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)
    out.print(table)
    out.print(_of_which_jobs(bound))


def _of_which_jobs(bound: TraceBound) -> str:
    """What the bound says, and of which jobs."""
    counted = bound.jobs - bound.cannot_run
    if not counted:
        return "There is no bound: no job of this trace can run on this cluster."
    said = "No schedule of this trace has a lower mean completion time, or a lower makespan."
    if not bound.cannot_run:
        return said
    do = "does" if bound.cannot_run == 1 else "do"
    left_out = f"{bound.cannot_run:,} cannot run on this cluster and {do} not count"
    return f"{said} This is of {counted:,} of its {bound.jobs:,} jobs: {left_out}."


def _words(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def tell_trace(trace: Trace, path: Path, options: GeneratorOptions) -> None:
    """Print a summary of a generated trace, and the command that runs it."""
    last_h, most = trace.jobs[-1].arrival_s / 3600, max(job.gangs[-1] for job in trace.jobs)
    rates = f" --throughputs {options.throughputs}" if options.throughputs else ""
    words = f"--format csv --cluster {options.cluster or f'{options.reference}={most}x8'}{rates}"
    if options.like == SIA:
        words = "--format sia --cluster aws=6x4,rtx=3x8,dgx-ext=2x8 --round 60 --policy sia --profiles FOLDER"
    out = Console(soft_wrap=True, stderr=True, highlight=False)
    out.print(
        f"{escape(str(path))}: {len(trace.jobs):,} jobs within {last_h:,.1f} h, on at most {most} GPUs. To run it:"
    )
    out.print(f"  {PROGRAM} run {escape(f'{path} {words}')}")


def follow(comparison: Comparison, update: Generator[RunUpdate[RunResult]], *, quiet: bool) -> None:
    """Show the progress of each run; leaving early ends all runs."""
    tasks = comparison.tasks
    try:
        with progress(quiet=quiet) as shown:
            whole = shown.add_task("runs done", total=len(tasks))
            rows: dict[int, TaskID] = {}
            for told in update:
                if told.place not in rows:
                    task = tasks[told.place]
                    words = escape(f"  jobs of {task.policy}, seed {task.seed}")
                    rows[told.place] = shown.add_task(words, total=comparison.totals[task.trace])
                if told.result is None:
                    shown.update(rows[told.place], completed=told.progress)
                else:
                    shown.remove_task(rows[told.place])
                    shown.advance(whole)
    finally:
        update.close()


def tell_comparison(comparison: Comparison, folder: Path) -> None:
    """Print one column per policy with the best values bold, the failed runs, and the path of the report."""
    of_policies = seed_statistics(comparison)
    table = Table(Heading("", no_wrap=True), *(escape(policy) for policy in of_policies))
    for column in told_columns(of_policies):
        winner = best(column, of_policies)
        table.add_row(column.heading, *(_cell(column, f[column.figure], winner) for f in of_policies.values()))
    out = Console(soft_wrap=True, width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    if of_policies:
        out.print(table)
        out.print(UTILIZATION_NOTE)
        if len(comparison.seeds) > 1:
            out.print(f"Means of {len(comparison.seeds)} seeds, ± the standard deviation between them.")
    if comparison.note:
        out.print(comparison.note)
    for (policy, seed), failed in comparison.failed.items():
        Console(stderr=True, soft_wrap=True).print(
            f"[bold red]Not finished:[/] {escape(policy)}, seed {seed}: {escape(failed.reason)}"
        )
    if comparison.outcomes:
        out.print(f"The report is in {escape(str(folder / 'report.html'))}", highlight=False)


def _cell(column: Column, spread: SeedStatistics, winner: object) -> str:
    words = column.words(spread.mean)
    if spread.deviation is not None:
        words += f" ± {column.deviation_words(spread)}"
    return f"[bold green]{words}[/]" if spread.mean is not None and spread.mean == winner else words
