"""Commands about quotas and budgets of teams: set and delete them; `motley share` shows them."""

from enum import StrEnum
from typing import Annotated

import typer

from motley_command.completion import gpu_types, teams
from motley_command.lookup import connect
from motley_command.tables.scheduling import quotas_table, shares_table
from motley_command.terminal import Output, OutputOption, emit, sanitized, say

quota = typer.Typer(no_args_is_help=True, help="Set and delete quotas of teams on GPU types.")
budget = typer.Typer(no_args_is_help=True, help="Set and delete budgets of teams.")
TeamArgument = Annotated[str, typer.Argument(metavar="TEAM", help="Name of the team.", autocompletion=teams)]
TypeArgument = Annotated[str, typer.Argument(metavar="TYPE", help="GPU type.", autocompletion=gpu_types)]


class Period(StrEnum):
    WEEK = "week"
    MONTH = "month"
    QUARTER = "quarter"


class Kind(StrEnum):
    SOFT = "soft"
    HARD = "hard"


@quota.command("set")
def set_quota(
    context: typer.Context,
    team: TeamArgument,
    gpu_type: TypeArgument,
    gpus: Annotated[int, typer.Argument(help="GPUs that the team has while its jobs can use them.")],
    *,
    borrow: Annotated[int | None, typer.Option(help="Most GPUs beyond the quota; default: no limit.")] = None,
    lend: Annotated[int | None, typer.Option(help="Most GPUs of it that others use; default: all.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Set the quota of a team on a GPU type, from the next round on. Administrators only."""
    with connect(context) as client:
        found = client.set_quota(team, gpu_type, gpus, borrowing_limit=borrow, lending_limit=lend)
    emit(output, found, names=[team], table=lambda: quotas_table([found]))


@quota.command("delete")
def delete_quota(context: typer.Context, team: TeamArgument, gpu_type: TypeArgument) -> None:
    """Delete the quota of a team on a GPU type. Administrators only."""
    with connect(context) as client:
        client.delete_quota(team, gpu_type)
    say(sanitized(f"The quota of {team} on {gpu_type} is deleted."))


@budget.command("set")
def set_budget(
    context: typer.Context,
    team: TeamArgument,
    gpu_hours: Annotated[float, typer.Argument(help="Reference GPU-hours: an hour on the average GPU counts as one.")],
    *,
    period: Annotated[Period, typer.Option(help="Calendar period, of UTC.")] = Period.MONTH,
    kind: Annotated[
        Kind, typer.Option(help="soft: the team's weight falls; hard: its waiting jobs wait for the next period.")
    ] = Kind.SOFT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Set the budget of a team, from the next round on. Administrators only."""
    with connect(context) as client:
        found = client.set_budget(team, gpu_hours, period=period.value, kind=kind.value)
    emit(output, found, names=[team], table=lambda: shares_table([found]))


@budget.command("delete")
def delete_budget(context: typer.Context, team: TeamArgument) -> None:
    """Delete the budget of a team. Administrators only."""
    with connect(context) as client:
        client.delete_budget(team)
    say(sanitized(f"The budget of {team} is deleted."))
