"""`shadow import`: Slurm's accounting under other policies, as one page."""

import gzip
import os
import shlex
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from simulation.cli.console import PROGRAM, progress
from simulation.clock.process_pool import FailedRun, run_all
from simulation.results.comparison import RunResult, perform
from simulation.shadow.accounting import ALL, Accounting, InvalidAccounting, LeftOut, read_accounting, without
from simulation.shadow.nodes import cluster_of, nodes_of_jobs, read_nodes, types_of_nodes
from simulation.shadow.page import HAPPENED, page
from simulation.shadow.study import (
    POLICIES,
    Study,
    Waits,
    left_out_lines,
    of_policy,
    prepare,
    replay_error_h,
    scenario_of,
    too_large,
    what_happened,
)

FAILED = 1

shadow = typer.Typer(no_args_is_help=True, help="What Motley's policies would have done on a Slurm cluster.")


@shadow.callback()
def group() -> None:
    """Keep `import` a command of its own: with one command alone, typer would leave its name out."""


@shadow.command("import")
def import_accounting(
    accounting: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="Output of sacct -P; may be compressed with gzip (.gz).")
    ],
    *,
    nodes: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Output of scontrol show node. Default: what jobs used."),
    ] = None,
    gpu_type: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="PARTITION=TYPE", help="GPU type of a partition, or of all: '*=a100'."),
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help=f"May be repeated. Default: {', '.join(POLICIES)}.")
    ] = None,
    leave_out: Annotated[
        bool, typer.Option("--leave-out", help="Leave out jobs that cannot be read, and count them.")
    ] = False,
    out: Annotated[
        Path, typer.Option(file_okay=False, metavar="FOLDER", help="Folder for shadow.html and the traces.")
    ] = Path("shadow"),
    processes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of parallel runs. Default: one per core.")
    ] = None,
) -> None:
    """Replay Slurm's accounting under other policies, and write one page that opens offline.

    Example: shadow import sacct.txt --nodes nodes.txt

    Nothing is installed on the cluster, and nothing leaves this machine.
    """
    study = _study(accounting, nodes, gpu_type or [], policy or POLICIES, out, leave_out=leave_out)
    results, failed = _replayed(study, processes or len(os.sched_getaffinity(0)))
    waits = {HAPPENED: what_happened(study)} | {
        name: of_policy(study, found) for name, found in results.items() if name
    }
    file = out / "shadow.html"
    file.write_text(page(study, waits, replay_error_h(study, results[""]), f"{PROGRAM} {shlex.join(sys.argv[1:])}"))
    _tell(waits, file)
    raise typer.Exit(FAILED if failed else 0)


def _study(
    file: Path, nodes: Path | None, types: Sequence[str], policies: Sequence[str], out: Path, *, leave_out: bool
) -> Study:
    of_partitions = _types(types)
    listed = read_nodes(_text(nodes), of_partitions) if nodes else None
    accounting = read_accounting(_text(file).split("\n"), of_partitions | dict(types_of_nodes(listed or [])))
    cluster = cluster_of(listed or nodes_of_jobs(accounting.jobs))
    accounting = without(accounting, too_large(accounting.jobs, cluster), LeftOut.NO_NODES)
    _check(accounting, leave_out=leave_out)
    for policy in policies:
        scenario_of(cluster).check(policy)
    return prepare(accounting, cluster, policies, out)


def _text(file: Path) -> str:
    data = file.read_bytes()
    try:
        return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode(errors="replace")
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidAccounting(f"{file}: it is cut or damaged: {error}.") from error


def _types(texts: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    if wrong := [name for name, is_given, kind in pairs if not (name and is_given and kind)]:
        raise InvalidAccounting(f"--type {wrong[0]}: write PARTITION=TYPE, or {ALL}=TYPE for all partitions.")
    return {name: kind.lower() for name, _, kind in pairs}


def _check(accounting: Accounting, *, leave_out: bool) -> None:
    """Say what is left out; refuse a file with jobs that cannot be read, unless these are to be left out, too."""
    for line in left_out_lines(accounting):
        sys.stderr.write(f"left out {line}\n")
    if accounting.unreadable and not leave_out:
        raise InvalidAccounting(
            f"{accounting.unreadable:,} GPU jobs cannot be read: see above. To do without them: --leave-out"
        )
    if len(accounting.jobs) < 2:
        raise InvalidAccounting(f"There are {len(accounting.jobs)} GPU jobs that ran: a study needs two at least.")


def _replayed(study: Study, at_once: int) -> tuple[Mapping[str, RunResult], bool]:
    """Results by policy, and of the replay of the starts under the empty name; whether a policy failed."""
    runs = dict(zip(["", *study.policies], study.tasks, strict=True))
    names = list(reversed(runs))  # of the default policies the last takes longest
    results: dict[str, RunResult] = {}
    failed = False
    with progress(quiet=False) as bars:
        bar_of = {name: bars.add_task(name or "replay", total=len(study.accounting.jobs)) for name in runs}
        for update in run_all(perform, [runs[name] for name in names], at_once=at_once):
            name = names[update.place]
            if update.progress is not None:
                bars.update(bar_of[name], completed=update.progress)
            if isinstance(update.result, FailedRun):
                sys.stderr.write(f"{name or 'replay'}: {update.result.reason}\n")
                failed = True
            elif update.result is not None:
                results[name] = update.result
    if "" not in results:
        raise InvalidAccounting("The replay of the starts failed: see above.")
    return {name: results[name] for name in runs if name in results}, failed


def _tell(waits: Mapping[str, Waits], file: Path) -> None:
    for name, one in waits.items():
        sys.stdout.write(f"{name:24} mean wait {one.mean_h:8.2f} h, 99 of 100 less than {one.p99_h:8.2f} h\n")
    sys.stdout.write(f"{file}\n")
