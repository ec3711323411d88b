"""What the commands print on a terminal."""

import json
import os
import sys
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column as Heading
from rich.table import Table

from simulation.comparing import Comparison, Outcome
from simulation.recipe import SIA, Recipe
from simulation.summary import Column, Spread, best, spreads, told_columns
from simulation.trace import Trace
from simulation.workers import News

PROGRAM = os.environ.get("MOTLEY_PROGRAM", "python -m simulation")
"""What was typed: `motley simulate` hands over to here."""

PLAIN_WIDTH = 300
"""Where nobody looks, columns are not squeezed: a file has no width."""


def progress(*, quiet: bool) -> Progress:
    """Jobs done of a run, or of several, while they go on; on the other stream, so that results stay clean."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    off = quiet or not sys.stderr.isatty()
    return Progress(*columns, console=Console(stderr=True), disable=off, transient=True)


def tell_figures(figures: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the figures of one run."""
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


def tell_trace(trace: Trace, path: Path, recipe: Recipe) -> None:
    """Say what was made up, and how it is run."""
    last_h, most = trace.jobs[-1].arrival_s / 3600, max(job.gangs[-1] for job in trace.jobs)
    rates = f" --throughputs {recipe.throughputs}" if recipe.throughputs else ""
    options = f"--format csv --cluster {recipe.cluster or f'{recipe.reference}={most}x8'}{rates}"
    if recipe.like == SIA:
        options = "--format sia --cluster aws=6x4,rtx=3x8,dgx-ext=2x8 --round 60 --policy sia --profiles FOLDER"
    out = Console(soft_wrap=True, stderr=True, highlight=False)
    out.print(f"{escape(str(path))}: {len(trace.jobs):,} jobs within {last_h:,.1f} h, on {most} GPUs at most. Run it:")
    out.print(f"  {PROGRAM} run {escape(f'{path} {options}')}")


def follow(comparison: Comparison, news: Generator[News[Outcome]], *, quiet: bool) -> None:
    """Show how far each run is, until all are done; end them all if this is left before."""
    tasks = comparison.tasks
    try:
        with progress(quiet=quiet) as shown:
            whole = shown.add_task("runs done", total=len(tasks))
            rows: dict[int, TaskID] = {}
            for told in news:
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
        news.close()


def tell_comparison(comparison: Comparison, folder: Path) -> None:
    """Print a column for each policy, the best of each figure bold; what failed, and where the report is."""
    of_policies = spreads(comparison)
    table = Table(Heading("", no_wrap=True), *(escape(policy) for policy in of_policies))
    for column in told_columns(of_policies):
        winner = best(column, of_policies)
        table.add_row(column.heading, *(_cell(column, f[column.figure], winner) for f in of_policies.values()))
    out = Console(soft_wrap=True, width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    if of_policies:
        out.print(table)
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


def _cell(column: Column, spread: Spread, winner: object) -> str:
    words = column.words(spread.mean)
    if spread.deviation is not None:
        words += f" ± {column.deviation_words(spread)}"
    return f"[bold green]{words}[/]" if spread.mean is not None and spread.mean == winner else words
