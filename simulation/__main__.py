"""`python -m simulation`: run a trace, compare policies on it, generate traces."""

import json
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from allocation.parameters import InvalidParameter
from allocation.policies import POLICIES
from simulation.cluster import InvalidCluster
from simulation.comparing import SEED, Comparison
from simulation.engine import Stalled
from simulation.formats.motley_csv import write_motley_csv
from simulation.formats.sia import write_sia
from simulation.generating import generate as generated
from simulation.gpu_types import UnknownGpuType
from simulation.options import taking
from simulation.recipe import SIA, Recipe
from simulation.scenario import Scenario
from simulation.setting import InvalidSetting, read_seeds
from simulation.summary import told_of
from simulation.terminal import PROGRAM, follow, progress, tell_comparison, tell_figures, tell_trace
from simulation.throughputs import InvalidTable, UnknownWorkload
from simulation.trace import InvalidTrace

FAILED, REFUSED, INTERRUPTED = 1, 2, 130
"""Exit codes: some runs came to no end; it cannot be run as it is asked for; Ctrl-C."""

POLICY_HELP = f"{', '.join(POLICIES)}; with parameters as in sia:power=-0.7,gap=0.01."

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def simulate() -> None:
    """Traces of jobs, run through the same decisions as the service's."""


@app.command()
@taking(Scenario)
def run(
    trace: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The trace; .gz is read, too.")],
    *,
    scenario: Scenario,
    policy: Annotated[str, typer.Option(metavar="NAME", help=POLICY_HELP)] = "max_min_fairness",
    seed: Annotated[int, typer.Option(help="Of everything that is left to chance.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run a trace on a cluster under a policy.

    As in: run trace.csv --format csv --cluster v100=4x8,t4=8x4 --policy srtf
    """
    ready = scenario.prepare(trace, policy, seed)
    with progress(quiet=as_json) as shown:
        task = shown.add_task("jobs done", total=ready.total)
        figures = ready.finish(lambda _: shown.update(task, completed=ready.simulation.done))
    tell_figures(figures, as_json=as_json)


@app.command()
@taking(Scenario)
def compare(
    trace: Annotated[str, typer.Argument(help=f"The trace. With {SEED} in its name, each seed has one of its own.")],
    *,
    scenario: Scenario,
    policy: Annotated[list[str], typer.Option(metavar="NAME", help=f"Repeat it for each. {POLICY_HELP}")],
    seeds: Annotated[
        str, typer.Option(metavar="SEEDS", help="0,1,2 or 0-9: of what is left to chance, or of the trace.")
    ] = "0",
    out: Annotated[
        Path,
        typer.Option(
            file_okay=False, metavar="FOLDER", help="For report.html, figures.json, figures.csv and jobs.csv."
        ),
    ] = Path("comparison"),
    processes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Runs at once. Default: one for each core.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print figures.json in place of a table.")] = False,
) -> None:
    """Run a trace under several policies, and by several seeds, at once; write a report.

    As in: compare trace.csv --format csv --cluster v100=4x8,t4=8x4 --policy srtf --policy sia

    If a run fails, the others are reported all the same, and the exit code is 1.
    """
    comparison = Comparison.plan(scenario, trace, policy, read_seeds(seeds))
    out.mkdir(parents=True, exist_ok=True)
    code = _run_all(comparison, processes or _cores(), quiet=as_json)
    command = f"{PROGRAM} {shlex.join(sys.argv[1:])}"
    if comparison.outcomes:
        from simulation.writing import write_comparison  # noqa: PLC0415  # loads plotly, which no other command needs

        write_comparison(comparison, out, command)
    if as_json:
        sys.stdout.write(json.dumps(told_of(comparison, command)) + "\n")
    else:
        tell_comparison(comparison, out)
    raise typer.Exit(code)


@app.command()
@taking(Recipe)
def generate(
    *,
    recipe: Recipe,
    seed: Annotated[str, typer.Option("--seed", "--seeds", metavar="SEEDS", help="0, or 0-9: a trace for each.")] = "0",
    out: Annotated[str, typer.Option(help=f"The file; {SEED} in its name stands for the seed. -: print it.")] = "-",
) -> None:
    """Make up a trace like that of a real cluster, in the format csv, or like Sia's in its own.

    As in: generate --like philly --jobs 500 --load 0.9 --cluster v100=4x8,t4=8x4 --elastic 0.5 --out trace.csv
    """
    seeds = read_seeds(seed)
    if len(seeds) > 1 and SEED not in out:
        raise InvalidSetting(f"several seeds are several files: say --out trace-{SEED}.csv")
    for one in seeds:
        trace = generated(recipe, one)
        lines = write_sia(trace.jobs) if recipe.like == SIA else write_motley_csv(trace.jobs)
        if out == "-":
            sys.stdout.writelines(lines)
        else:
            path = Path(out.replace(SEED, str(one)))
            with path.open("w") as file:
                file.writelines(lines)
            tell_trace(trace, path, recipe)


def _run_all(comparison: Comparison, at_once: int, *, quiet: bool) -> int:
    """Run what is to be compared, and give the exit code; whoever stops it gets what was done by then."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        follow(comparison, comparison.run(at_once), quiet=quiet)
    except KeyboardInterrupt:
        comparison.give_up("stopped before its end")
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)
    return FAILED if comparison.failed else 0


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def main(words: Sequence[str] | None = None) -> None:
    """Do what the words, or those of the command line, say; leave with 2 and a reason where they mean nothing."""
    try:
        app(words, prog_name=PROGRAM)
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
    except OSError as error:
        sys.stderr.write(f"{error.filename}: {error.strerror}\n")
        sys.exit(REFUSED)


if __name__ == "__main__":
    main()
