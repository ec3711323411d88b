"""Commands about scheduling: fair shares, usage, rounds, the policy."""

from datetime import datetime
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import Annotated, Any

import typer

from motley_client.client import Client
from motley_client.responses import ChosenPolicy, Policy
from motley_client.spec import SpecError, numbers_of
from motley_command.completion import TeamOption
from motley_command.completion import policies as known_policies
from motley_command.lookup import connect
from motley_command.tables.policy_effects import chosen_details, preview_details
from motley_command.tables.report import report_tables
from motley_command.tables.scheduling import (
    choices_table,
    policies_table,
    policy_described,
    policy_details,
    round_details,
    rounds_table,
    shares_and_quotas,
    usage_table,
)
from motley_command.terminal import Output, OutputOption, WatchOption, emit, now, present

LATEST_ROUNDS = 20
DAY = "%Y-%m-%d"


class Period(StrEnum):
    DAY = "day"
    MONTH = "month"


class CpuMemory(StrEnum):
    PROPORTIONAL = "proportional"
    TUNE = "tune"


policy = typer.Typer(no_args_is_help=True, help="Show, list and change the scheduling policy.")


def share(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """Show fair shares, quotas and budgets of teams: the share of work that each was entitled to, and received."""
    with connect(context) as client:
        teams = list(client.teams())
    emit(output, teams, names=[team["name"] for team in teams], table=lambda: shares_and_quotas(teams))


def usage(
    context: typer.Context,
    *,
    since: Annotated[
        datetime | None, typer.Option(formats=[DAY], help="First day; default: first of this month.")
    ] = None,
    until: Annotated[datetime | None, typer.Option(formats=[DAY], help="Last day; default: today.")] = None,
    by: Annotated[Period, typer.Option(help="A line per day or per month.")] = Period.MONTH,
    team: Annotated[str, typer.Option(help="Only this team.")] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show GPU-hours and cost of your teams per GPU type. Days are those of UTC."""
    with connect(context) as client:
        first, last = (day.date() if day else None for day in (since, until))
        report = client.usage(since=first, until=last, by=by.value, team=team)
    emit(output, report, names=sorted({row["team"] for row in report["rows"]}), table=lambda: usage_table(report))


def report(
    context: typer.Context,
    *,
    month: Annotated[str | None, typer.Option(metavar="YYYY-MM", help="Month of UTC; default: this month.")] = None,
    team: TeamOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show what your teams had in a month: work, cost, energy, jobs, waiting, waste, members' shares."""
    with connect(context) as client:
        found = client.report(month=month, team=team or "")
    emit(output, found, names=[one["team"] for one in found["teams"]], table=lambda: report_tables(found))


def rounds(
    context: typer.Context,
    number: Annotated[int | None, typer.Argument(help="Show only this round, with its decisions.")] = None,
    *,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rounds.")] = LATEST_ROUNDS,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List scheduling rounds, newest first. Shows changes, optimality gap, solve time and shadow prices of GPUs."""
    with connect(context) as client:
        if number is not None:
            found = client.round(number)
            emit(output, found, names=[str(number)], table=lambda: round_details(found, now=now()))
            return
        present(
            lambda: list(islice(client.rounds(page_size=min(limit, 200)), limit)),
            output=output,
            watch=watch,
            names=lambda rounds: [str(one["number"]) for one in rounds],
            table=lambda rounds: rounds_table(rounds, now=now()),
        )


@policy.command()
def show(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """Show the current policy, its settings and, if it was applied from the policy lab, its effects."""
    with connect(context) as client:
        current, guard = client.current_policy(), client.policy_guard()
    details = partial(chosen_details, current, guard, now=now())
    emit(output, {**current, "guard": guard}, names=[current["policy"]], table=details)


@policy.command("list")
def list_policies(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="POLICY", help="Show only this policy, in full.", autocompletion=known_policies),
    ] = None,
    *,
    output: OutputOption = Output.TABLE,
) -> None:
    """List available policies; * marks the current one.

    With POLICY, show when to choose it, its parameters and its sources.
    """
    with connect(context) as client:
        found = list(client.policies())
    if name is not None:
        one = _find_policy(found, name)
        emit(output, one, names=[one["name"]], table=lambda: policy_described(one))
        return
    emit(output, found, names=[one["name"] for one in found], table=lambda: policies_table(found))


@policy.command()
def history(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """List policy changes, newest first."""
    with connect(context) as client:
        found = list(client.policy_history())
    emit(output, found, names=[str(one["id"]) for one in found], table=lambda: choices_table(found, now=now()))


@policy.command("set")
def choose(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="POLICY", help="Name of the policy.", autocompletion=known_policies)],
    *,
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            metavar="NAME=VALUE",
            help="Parameter of the policy; repeat for several. See motley policy list POLICY.",
        ),
    ] = None,
    round_length: Annotated[float | None, typer.Option(metavar="SECONDS", help="Length of a round.")] = None,
    min_run: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Minimum run time before a job may be preempted.")
    ] = None,
    solve_limit: Annotated[
        float | None,
        typer.Option(
            metavar="FRACTION", help="Fraction of a round that the solver may use; then its best solution is used."
        ),
    ] = None,
    cpu_memory: Annotated[
        CpuMemory | None,
        typer.Option(help="How CPUs and memory are shared that no job asks for."),
    ] = None,
    note: Annotated[str | None, typer.Option(help="Reason, recorded in the history.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what the next round would do, and change nothing.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Use this policy from the next round on. Administrators only.

    Times and --cpu-memory stay as they are if not given. Without --param, the current policy keeps its parameters and
    another policy starts with its defaults; with --param, parameters that are not given have their defaults.
    """
    asked: dict[str, Any] = {
        "parameters": numbers_of("--param", parameter or []) or None,
        "round_length_s": round_length,
        "min_run_s": min_run,
        "solve_limit_part": solve_limit,
        "cpu_memory": cpu_memory and cpu_memory.value,
    }
    with connect(context) as client:
        if dry_run:
            found = client.preview_policy(name, **asked)
            names = [one["job"] for one in found["listed"]]
            emit(output, found, names=names, table=lambda: preview_details(found))
            return
        chosen = client.choose_policy(name, **asked, note=note)
    emit(output, chosen, names=[chosen["policy"]], table=lambda: policy_details(chosen, now=now()))


@policy.command()
def undo(
    context: typer.Context,
    choice: Annotated[
        int | None,
        typer.Argument(metavar="ID", help="Id of settings from motley policy history; default: those before."),
    ] = None,
    *,
    note: Annotated[str, typer.Option(help="Reason of the undo, recorded in the history.")] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Undo the last change of the policy, or restore the settings with this ID. Administrators only."""
    if note and choice is not None:
        raise typer.BadParameter("leave it out, or leave out ID", param_hint="--note")
    with connect(context) as client:
        chosen = _undone(client, note) if choice is None else client.choose_policy_again(choice)
    emit(output, chosen, names=[chosen["policy"]], table=lambda: policy_details(chosen, now=now()))


def _undone(client: Client, note: str) -> ChosenPolicy:
    """The service refuses if another setting is chosen between the two requests."""
    current = client.current_policy()
    if current["id"] is None:
        raise SpecError("No policy has been set yet: there is nothing to undo.")
    return client.undo_policy(current["id"], note=note)


def _find_policy(policies: list[Policy], name: str) -> Policy:
    for policy_ in policies:
        if policy_["name"] == name:
            return policy_
    raise SpecError(f"No policy named {name}. Available: {', '.join(one['name'] for one in policies)}.")
