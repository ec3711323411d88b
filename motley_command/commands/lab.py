"""The `motley lab` commands: runs of the policy lab."""

import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from motley_client.client import Client
from motley_client.responses import LabRun
from motley_command.completion import policies as known_policies
from motley_command.lab_assertions import Assertion
from motley_command.lookup import connect
from motley_command.tables.lab import lab_run_details, lab_runs_table, node_savings_table, progress
from motley_command.tables.policy_effects import applied_details, lab_preview_details
from motley_command.team_limits import BUDGET_FORM, QUOTA_FORM, budgets_of, quotas_of
from motley_command.terminal import Output, OutputOption, emit, now, sanitized, warn

LATEST_RUNS = 20
POLL_INTERVAL_S = 1.0
UNFINISHED = ("queued", "running")

lab = typer.Typer(no_args_is_help=True, help="Simulate the jobs of the last days, or of a trace, under other policies.")
Number = TypeVar("Number", int, float)
AssertOption = Annotated[
    list[str] | None,
    typer.Option(
        "--assert",
        metavar="BOUND",
        help="Ratio to the current policy as simulated: 'p99 <= 1.03', 'team:*.jct <= 1.05'; may be repeated.",
    ),
]
RunArgument = Annotated[int, typer.Argument(metavar="RUN", help="Number of the run.")]


@lab.command()
def run(
    context: typer.Context,
    *,
    policy: Annotated[
        list[str],
        typer.Option(metavar="NAME", help="May be repeated; as in sia:power=-0.5.", autocompletion=known_policies),
    ],
    days: Annotated[int | None, typer.Option(min=1, max=366, help="The last N days; default: 7.")] = None,
    trace: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, metavar="FILE", help="A trace in place of the last days."),
    ] = None,
    trace_format: Annotated[
        str | None, typer.Option("--format", metavar="FORMAT", help="Of the trace; default: csv, Motley's own.")
    ] = None,
    throughputs: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, metavar="FILE", help="Rates of its workloads, in Gavel's JSON format."
        ),
    ] = None,
    round_s: Annotated[float | None, typer.Option("--round", help="Length of a round, s; default: as now.")] = None,
    nodes: Annotated[
        list[str] | None, typer.Option(metavar="TYPE=NODES", help="Nodes added, or taken: a100=2, t4=-1.")
    ] = None,
    weight: Annotated[
        list[str] | None, typer.Option(metavar="TEAM=WEIGHT", help="Weight of a team in place of the present one.")
    ] = None,
    quota: Annotated[
        list[str] | None,
        typer.Option(metavar=QUOTA_FORM, help="Quota in place of the present one: vision:a100=8:4, vision:a100=none."),
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(metavar=BUDGET_FORM, help="Budget in place of the present one: vision=500/month:hard."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Wait for the result, and show the progress.")] = False,
    assertion: AssertOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Simulate the jobs of the last days, or of a trace, under these policies. With --assert it waits for the result:

    motley lab run --policy sia --assert 'team:*.jct <= 1.05' --assert 'p99 <= 1.03'

    Exit code 1: it failed or was cancelled, or an assertion does not hold.
    """
    asserted = [Assertion.parse(text) for text in assertion or []]
    changes = _numbers(nodes or [], int, "--nodes", "TYPE=NODES, as in a100=2 or t4=-1")
    weights = _numbers(weight or [], float, "--weight", "TEAM=WEIGHT, as in vision=2")
    limits, budgets = quotas_of(quota or []), budgets_of(budget or [])
    with connect(context) as client:
        made = client.simulate_policies(
            policy,
            days=days,
            trace=_text(trace),
            trace_format=trace_format,
            throughputs=_text(throughputs),
            round_length_s=round_s,
            nodes=changes,
            team_weights=weights,
            quotas=limits,
            budgets=budgets,
        )
        found = _followed(client, made) if watch or asserted else made
    emit(output, found, names=[str(found["id"])], table=lambda: lab_run_details(found))
    raise typer.Exit(found["state"] in ("failed", "cancelled") or _is_refuted(found, asserted))


@lab.command("list")
def list_runs(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """List your runs, newest first; administrators see all."""
    with connect(context) as client:
        runs = list(islice(client.lab_runs(), LATEST_RUNS))
    emit(output, runs, names=[str(one["id"]) for one in runs], table=lambda: lab_runs_table(runs, now=now()))


@lab.command()
def show(
    context: typer.Context, number: RunArgument, *, assertion: AssertOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Show a run with its result. Exit code 1: an assertion does not hold."""
    asserted = [Assertion.parse(text) for text in assertion or []]
    with connect(context) as client:
        found = client.lab_run(number)
    emit(output, found, names=[str(number)], table=lambda: lab_run_details(found))
    raise typer.Exit(_is_refuted(found, asserted))


@lab.command()
def nodes(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """Show the waiting that one more node of each GPU type would save, and one less cost: by prices, and simulated.

    The lab simulates it with: motley lab run --policy motley --nodes t4=1
    """
    with connect(context) as client:
        found = client.node_savings()
    names = [one["gpu_type"] for one in found["types"]]
    emit(output, found, names=names, table=lambda: node_savings_table(found))


@lab.command()
def cancel(context: typer.Context, number: RunArgument, output: OutputOption = Output.TABLE) -> None:
    """Cancel an unfinished run."""
    with connect(context) as client:
        found = client.cancel_lab_run(number)
    emit(output, found, names=[str(number)], table=lambda: lab_run_details(found))


@lab.command()
def apply(
    context: typer.Context,
    number: RunArgument,
    policy: Annotated[str, typer.Argument(metavar="POLICY", help="One of the run's, as named there.")],
    *,
    note: Annotated[str, typer.Option(help="Reason, recorded in the history.")] = "",
    watch_hours: Annotated[
        float | None, typer.Option(metavar="HOURS", help="How long the effects are watched; default: 6.")
    ] = None,
    undo_by_itself: Annotated[
        bool, typer.Option("--undo-by-itself", help="Undo the change once its effects are worse than predicted.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what the next round would do, and change nothing.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Use a policy of the run from the next round on, and watch its effects. Administrators only."""
    with connect(context) as client:
        if dry_run:
            found = client.preview_lab_policy(number, policy)
            emit(output, found, names=[policy], table=lambda: lab_preview_details(found))
            return
        applied = client.apply_lab_policy(
            number, policy, note=note, guard_hours=watch_hours, undo_by_itself=undo_by_itself
        )
    names = [applied["setting"]["policy"]]
    emit(output, applied, names=names, table=lambda: applied_details(applied, now=now()))


def _is_refuted(found: LabRun, asserted: list[Assertion]) -> bool:
    """Whether an assertion does not hold; each is told on standard error."""
    result = found.get("result")
    if asserted and not result:
        warn(f"Run {found['id']} is {found['state']}: it has no result to assert anything of.")
        return True
    failures = [text for one in asserted for text in one.failures(result or {})]
    for text in failures:
        warn(sanitized(text))
    return bool(failures)


def _numbers(words: list[str], read: Callable[[str], Number], option: str, form: str) -> dict[str, Number]:
    try:
        return {name: read(number) for name, _, number in (word.rpartition("=") for word in words)}
    except ValueError:
        raise typer.BadParameter(f"write {form}", param_hint=option) from None


def _text(path: Path | None) -> str | None:
    try:
        return None if path is None else path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{path} is not text in UTF-8: {error}") from None


def _followed(client: Client, made: LabRun) -> LabRun:
    """The run once it has ended; each change of its progress is told on standard error."""
    found, told = made, ""
    while found["state"] in UNFINISHED:
        if (words := f"Run {found['id']}: {found['state']}, {progress(found)}") != told:
            warn(words)
            told = words
        time.sleep(POLL_INTERVAL_S)
        found = client.lab_run(made["id"])
    return found
