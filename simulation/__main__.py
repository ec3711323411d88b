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

from allocation.policies import POLICIES
from allocation.policies.parameters import InvalidParameter
from allocation.solvers.linear_program import divert_native_output
from simulation.cli.console import PROGRAM, follow, progress, tell_bound, tell_comparison, tell_figures, tell_trace
from simulation.cli.option_groups import with_options
from simulation.clock.run import Stalled
from simulation.cluster import InvalidCluster
from simulation.results.bound import certified_bound
from simulation.results.comparison import SEED, Comparison
from simulation.results.summary import told_of
from simulation.scenario.generator import generate as generated
from simulation.scenario.generator_options import SIA, GeneratorOptions
from simulation.scenario.scenario import Scenario
from simulation.scenario.setting import InvalidSetting, read_seeds
from simulation.shadow.accounting import InvalidAccounting
from simulation.shadow.command import shadow
from simulation.traces.motley_csv import write_motley_csv
from simulation.traces.sia import write_sia
from simulation.traces.trace import InvalidTrace
from simulation.workloads.rate_sources import InvalidTable, UnknownGpuType, UnknownWorkload

FAILED, REFUSED, INTERRUPTED = 1, 2, 130
"""Exit codes: some runs did not finish; the request is invalid; interrupted by Ctrl-C."""

POLICY_HELP = f"{', '.join(POLICIES)}; with parameters, for example sia:power=-0.7,gap=0.01."

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
app.add_typer(shadow, name="shadow")


@app.callback()
def simulate() -> None:
    """Run traces of jobs through the same decisions as the service."""


@app.command()
@with_options(Scenario)
def run(
    trace: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="Trace file; may be compressed with gzip (.gz).")
    ],
    *,
    scenario: Scenario,
    policy: Annotated[str, typer.Option(metavar="NAME", help=POLICY_HELP)] = "motley",
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run a trace on a cluster under a policy.

    Example: run trace.csv --format csv --cluster v100=4x8,t4=8x4 --policy srtf
    """
    ready = scenario.prepare(trace, policy, seed)
    with progress(quiet=as_json) as shown:
        task = shown.add_task("jobs done", total=ready.total)
        figures = ready.finish(lambda _: shown.update(task, completed=ready.simulation.done))
    tell_figures(figures, ready.notes, as_json=as_json)


@app.command()
@with_options(Scenario)
def compare(
    trace: Annotated[
        str, typer.Argument(help=f"Trace file; {SEED} in its name stands for the seed: one trace per seed.")
    ],
    *,
    scenario: Scenario,
    policy: Annotated[list[str], typer.Option(metavar="NAME", help=f"May be repeated. {POLICY_HELP}")],
    seeds: Annotated[str, typer.Option(metavar="SEEDS", help="Seeds, for example 0,1,2 or 0-9.")] = "0",
    out: Annotated[
        Path,
        typer.Option(
            file_okay=False, metavar="FOLDER", help="Folder for report.html, figures.json, figures.csv and jobs.csv."
        ),
    ] = Path("comparison"),
    processes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of parallel runs. Default: one per core.")
    ] = None,
    bound: Annotated[
        bool,
        typer.Option("--bound", help="Compare with a bound that no schedule can beat, too (see the command bound)."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print figures.json instead of a table.")] = False,
) -> None:
    """Run a trace under several policies and seeds in parallel, and write a report.

    Example: compare trace.csv --format csv --cluster v100=4x8,t4=8x4 --policy srtf --policy sia

    If a run fails, the others are still reported, and the exit code is 1.
    """
    comparison = Comparison.plan(scenario, trace, policy, read_seeds(seeds), bound=bound)
    out.mkdir(parents=True, exist_ok=True)
    code = _run_all(comparison, processes or _cores(), quiet=as_json)
    command = f"{PROGRAM} {shlex.join(sys.argv[1:])}"
    if comparison.outcomes:
        from simulation.results.report import write_comparison  # noqa: PLC0415  # loads plotly, which no other command needs

        write_comparison(comparison, out, command)
    if as_json:
        sys.stdout.write(json.dumps(told_of(comparison, command)) + "\n")
    else:
        tell_comparison(comparison, out)
    raise typer.Exit(code)


@app.command()
@with_options(Scenario)
def bound(
    trace: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="Trace file; may be compressed with gzip (.gz).")
    ],
    *,
    scenario: Scenario,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compute a mean completion time and a makespan that no schedule of a trace can beat.

    Example: bound trace.csv --format csv --cluster v100=4x8,t4=8x4

    Of the other options only those count that change the jobs, their rates or the cluster. Jobs that can never run on
    the cluster do not count. Each figure of the output is explained beside it, and in docs/simulation.md.
    """
    tell_bound(certified_bound(scenario, trace), as_json=as_json)


@app.command()
@with_options(GeneratorOptions)
def generate(
    *,
    options: GeneratorOptions,
    seed: Annotated[
        str, typer.Option("--seed", "--seeds", metavar="SEEDS", help="Seed, or seeds such as 0-9: one trace per seed.")
    ] = "0",
    out: Annotated[
        str, typer.Option(help=f"Output file; {SEED} in its name stands for the seed; - prints the trace.")
    ] = "-",
) -> None:
    """Generate a trace that resembles a real cluster's, as CSV; a trace like Sia's in its own format.

    Example: generate --like philly --jobs 500 --load 0.9 --cluster v100=4x8,t4=8x4 --elastic 0.5 --out trace.csv
    """
    seeds = read_seeds(seed)
    if len(seeds) > 1 and SEED not in out:
        raise InvalidSetting(f"several seeds need several files: use --out trace-{SEED}.csv")
    for one in seeds:
        trace = generated(options, one)
        lines = write_sia(trace.jobs) if options.like == SIA else write_motley_csv(trace.jobs)
        if out == "-":
            sys.stdout.writelines(lines)
        else:
            path = Path(out.replace(SEED, str(one)))
            with path.open("w") as file:
                file.writelines(lines)
            tell_trace(trace, path, options)


def _run_all(comparison: Comparison, at_once: int, *, quiet: bool) -> int:
    """Run the comparison and return the exit code; an interrupted one keeps the runs that finished."""
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
    """Entry point of the command line; an invalid request exits with code 2 and the reason on stderr."""
    try:
        app(words, prog_name=PROGRAM)
    except (
        InvalidAccounting,
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
    divert_native_output(sys.stderr.fileno())
    main()
