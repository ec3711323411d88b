"""Commands about secrets: set, list, delete."""

import sys
from typing import Annotated

import typer

from motley_client.errors import NotFound
from motley_command.lookup import connect
from motley_command.tables.account import secrets_table
from motley_command.terminal import Output, OutputOption, emit, now, sanitized, say

secret = typer.Typer(no_args_is_help=True, help="Set, list and delete secrets: variables for jobs that name them.")
TeamOption = Annotated[str | None, typer.Option(help="Of this team; default: your own, for your jobs only.")]


@secret.command("set")
def set_secret(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the environment variable, e.g. WANDB_API_KEY.")],
    *,
    team: TeamOption = None,
) -> None:
    """Set a secret. Its value is asked for, or read from standard input: motley secret set NAME < file

    A job gets it if its spec has `secrets: [NAME]`, or by motley submit --secret NAME. Nobody can read it back.
    """
    value = _value(name)
    with connect(context) as client:
        made = client.set_secret(name, value, team=team)
    say(sanitized(f"{made['name']} is set for {_whose(made['team'])}."))


@secret.command("list")
def list_secrets(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """List the names of your secrets and of those of your teams."""
    with connect(context) as client:
        found = list(client.secrets())
    emit(output, found, names=[one["name"] for one in found], table=lambda: secrets_table(found, now=now()))


@secret.command()
def delete(context: typer.Context, name: str, *, team: TeamOption = None) -> None:
    """Delete a secret. Jobs that name it and have not started fail when they start."""
    with connect(context) as client:
        found = [one for one in client.secrets() if (one["name"], one["team"]) == (name, team)]
        if not found:
            raise NotFound(f"There is no secret {name} of {_whose(team)}: see motley secret list.")
        client.delete_secret(found[0]["id"])
    say(sanitized(f"{name} of {_whose(team)} is deleted."))


def _whose(team: str | None) -> str:
    return f"team {team}" if team else "your jobs"


def _value(name: str) -> str:
    """The value typed on the terminal, unseen; without a terminal all of standard input, less one final newline."""
    if sys.stdin.isatty():
        return str(typer.prompt(f"Value of {name}", hide_input=True, err=True))
    return sys.stdin.read().removesuffix("\n")
