"""Commands about teams: members, leads, limits, invitations, retire and restore; `motley share` lists teams."""

from typing import Annotated

import typer

from motley_client.client import Client
from motley_client.responses import Member
from motley_command.completion import teams
from motley_command.lookup import connect
from motley_command.tables.account import members_table, starts_table
from motley_command.terminal import Output, OutputOption, emit, sanitized, say, warn

team = typer.Typer(no_args_is_help=True, help="List, add and remove members of a team, and name its leads.")
TeamArgument = Annotated[str, typer.Argument(metavar="TEAM", help="Name of the team.", autocompletion=teams)]
PersonArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the account.")]


@team.command()
def members(context: typer.Context, name: TeamArgument, output: OutputOption = Output.TABLE) -> None:
    """List the members of a team: roles, GPUs now, GPU-hours of seven days, jobs."""
    with connect(context) as client:
        found = client.members(name)
    emit(output, found, names=[one["username"] for one in found], table=lambda: members_table(found))


@team.command()
def starts(context: typer.Context, name: TeamArgument, output: OutputOption = Output.TABLE) -> None:
    """Show where starts of a team's jobs went: claim, launch, first step; median and 90 % quantile of seven days."""
    with connect(context) as client:
        found = client.team_starts(name)
    emit(output, found, names=[one["stage"] for one in found["stages"]], table=lambda: starts_table(found["stages"]))


@team.command()
def add(
    context: typer.Context,
    name: TeamArgument,
    person: PersonArgument,
    *,
    lead: Annotated[bool, typer.Option("--lead", help="As a lead, who manages members and their limits.")] = False,
) -> None:
    """Add a member to a team. Leads of the team and administrators only."""
    with connect(context) as client:
        _say_role(client, name, person, lead=True if lead else None)


@team.command()
def remove(context: typer.Context, name: TeamArgument, person: PersonArgument) -> None:
    """Remove a member from a team; the jobs go on. Leads of the team and administrators only."""
    with connect(context) as client:
        client.remove_member(name, person)
    say(sanitized(f"{person} is no longer a member of {name}."))


@team.command()
def make_lead(context: typer.Context, name: TeamArgument, person: PersonArgument) -> None:
    """Make a member a lead of the team. Leads of the team and administrators only."""
    with connect(context) as client:
        _refuse_stranger(client, name, person)
        _say_role(client, name, person, lead=True)


@team.command()
def end_lead(context: typer.Context, name: TeamArgument, person: PersonArgument) -> None:
    """Make a lead a member without this role. Leads of the team and administrators only."""
    with connect(context) as client:
        _refuse_stranger(client, name, person)
        _say_role(client, name, person, lead=False)


@team.command()
def invite(
    context: typer.Context,
    name: TeamArgument,
    person: PersonArgument,
    *,
    email: Annotated[str, typer.Option(help="Where the invitation is sent, if the site sends mail.")] = "",
    lead: Annotated[bool, typer.Option("--lead", help="As a lead, who manages members and their limits.")] = False,
) -> None:
    """Invite a person without an account, and print the link, once. Leads of the team and administrators only."""
    with connect(context) as client:
        made = client.invite(name, person, email=email, lead=lead)
    say(made["link"])
    sent = f"was mailed to {email}" if made["mailed"] else "was not mailed: give it to the person"
    warn(sanitized(f"The link of {made['username']} is good for seven days, and never shown again. It {sent}."))


@team.command()
def limit(
    context: typer.Context,
    name: TeamArgument,
    *,
    gpus: Annotated[str | None, typer.Option(help="Most GPUs of one member at once, or none.")] = None,
    idle: Annotated[
        str | None, typer.Option(metavar="MINUTES", help="Without use of its GPUs, after which a job stops, or none.")
    ] = None,
) -> None:
    """Limit the members of a team; what is not given stays. Leads of the team and administrators only."""
    with connect(context) as client:
        now = client.team(name)
        most = _number("--gpus", gpus, now["max_gpus_per_member"])
        minutes = _number("--idle", idle, now.get("idle_gpus_limit_min"))
        client.limit_members(name, max_gpus=most, idle_minutes=minutes)
    say(sanitized(f"Each member of {name}: GPUs {_told(most)}, minutes of idle GPUs {_told(minutes)}."))


@team.command()
def retire(context: typer.Context, name: TeamArgument) -> None:
    """Retire a team without unfinished jobs: nothing can be submitted for it. Administrators only."""
    with connect(context) as client:
        client.retire_team(name)
    say(sanitized(f"The team {name} is retired."))


@team.command()
def restore(context: typer.Context, name: TeamArgument) -> None:
    """Let a retired team submit jobs again. Administrators only."""
    with connect(context) as client:
        client.restore_team(name)
    say(sanitized(f"The team {name} may submit jobs again."))


def _number(option: str, text: str | None, present: int | None) -> int | None:
    """Parse a limit: a number, None for `none` (no limit), or the present one if the option is absent."""
    if text is None or text == "none":
        return present if text is None else None
    if not text.isdecimal():
        raise typer.BadParameter("write a whole number, or none", param_hint=option)
    return int(text)


def _told(limit: int | None) -> str:
    return "without a limit" if limit is None else f"{limit} at most"


def _member(members: list[Member], person: str) -> Member | None:
    return next((one for one in members if one["username"] == person and one["is_member"]), None)


def _refuse_stranger(client: Client, name: str, person: str) -> None:
    """A role is given to members alone: a name that is misspelt must not become a member."""
    if _member(client.members(name), person) is None:
        raise typer.BadParameter(f"{person} is not a member of {name}: see motley team members, or add this account.")


def _say_role(client: Client, name: str, person: str, *, lead: bool | None) -> None:
    found = _member(client.set_member(name, person, lead=lead), person)
    role = "a lead" if found and found["is_lead"] else "a member"
    say(sanitized(f"{person} is {role} of {name}."))
