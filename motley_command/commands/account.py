"""Commands about the user: login, logout, me, config, token, version."""

import os
import sys
from enum import StrEnum
from importlib.metadata import version as version_of
from typing import Annotated

import typer

from motley_client.client import Client
from motley_client.responses import Me, Scope
from motley_client.spec import SpecError
from motley_command.completion import tokens as known_tokens
from motley_command.configuration import (
    ConfigurationError,
    configuration_file,
    read_file,
    whole_address,
    write_file,
)
from motley_command.lookup import connect, find_token
from motley_command.tables.account import me_details, tokens_table
from motley_command.terminal import Output, OutputOption, emit, now, sanitized, say, warn


class Setting(StrEnum):
    """Names of defaults."""

    TEAM = "team"


token = typer.Typer(no_args_is_help=True, help="Create, list and revoke API tokens.")
config = typer.Typer(no_args_is_help=True, help="Defaults of this command on this machine.")


def login(
    context: typer.Context,
    url: Annotated[str | None, typer.Argument(help="Address of the service, e.g. https://motley.example.")] = None,
) -> None:
    """Save the address and an API token of a service.

    Create a token on the page Tokens of the service. It is asked for, or read from standard input:
    motley login https://motley.example < token.txt
    """
    file = configuration_file(os.environ)
    known = url or context.obj["url"] or os.environ.get("MOTLEY_URL") or read_file(file).get("url")
    typed = url or context.obj["url"] or _asked("Address of the service", default=known)
    address = whole_address(typed.rstrip("/"))
    text = context.obj["token"] or _asked(f"API token (create one at {address}/tokens)", hidden=True)
    with Client(address, text) as client:
        me = client.me()
    write_file(file, {**read_file(file), "url": address, "token": text})
    say(f"Logged in to {sanitized(address)} as {sanitized(me['username'])}. {_allowed(me)}")
    say(f"  Token saved in {file}, readable only by you.")
    _warn_of_environment()


def logout() -> None:
    """Delete the saved token. The token itself stays valid; motley token revoke revokes it."""
    file = configuration_file(os.environ)
    saved = read_file(file)
    if "token" not in saved:
        say(f"No token is saved in {file}.")
        return
    write_file(file, {**saved, "token": ""})
    say(f"Token deleted from {file}. It stays valid until it expires or is revoked.")
    _warn_of_environment()


def me(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """Show your user name, your teams and the scope of your token."""
    with connect(context) as client:
        answer = client.me()
    emit(output, answer, names=[answer["username"]], table=lambda: me_details(answer))


@config.command("set")
def set_default(
    context: typer.Context,
    name: Annotated[Setting, typer.Argument(help="team: that of new jobs that name none.")],
    value: str,
) -> None:
    """Save a default. Example: motley config set team vision"""
    with connect(context) as client:
        teams = client.me()["teams"]
    if value not in teams:
        raise SpecError(f"{value}: you are in no such team. Your teams: {', '.join(teams) or 'none'}.")
    file = configuration_file(os.environ)
    write_file(file, {**read_file(file), name.value: value})
    say(f"New jobs are of the team {sanitized(value)}, unless --team or $MOTLEY_TEAM names another.")


@config.command("unset")
def unset_default(name: Setting) -> None:
    """Forget a default."""
    file = configuration_file(os.environ)
    write_file(file, {**read_file(file), name.value: ""})
    say(f"There is no default {name}.")


@config.command("show")
def show_defaults() -> None:
    """Show the saved address and defaults."""
    for name, value in read_file(configuration_file(os.environ)).items():
        if name != "token":
            say(f"{name}: {sanitized(value)}")


@token.command()
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the token, e.g. of the program that will use it.")],
    *,
    scope: Annotated[
        Scope,
        typer.Option(
            help="read: look only; submit: also submit and change jobs; admin: everything that you are allowed to do."
        ),
    ] = (Scope.SUBMIT),
    expires_in: Annotated[str | None, typer.Option(help="Lifetime, e.g. 30d. Default: no expiry.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create an API token. Its text is printed once and cannot be shown again."""
    with connect(context) as client:
        made = client.create_token(name, scope=scope, expires_in=expires_in)
    if output is not Output.TABLE:
        emit(output, made, names=[made["token"]], table=lambda: "")
        return
    say(made["token"])
    warn("Save the token now: it is never shown again.")


@token.command("list")
def list_tokens(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """List your API tokens with scope, last use and expiry."""
    with connect(context) as client:
        found = list(client.tokens())
    emit(output, found, names=[str(one["id"]) for one in found], table=lambda: tokens_table(found, now=now()))


@token.command()
def revoke(
    context: typer.Context,
    tokens: Annotated[
        list[str],
        typer.Argument(
            metavar="TOKEN...", help="Ids or names, or prefixes of the tokens themselves.", autocompletion=known_tokens
        ),
    ],
) -> None:
    """Revoke API tokens: requests that use them are refused from now on."""
    with connect(context) as client:
        for typed in tokens:
            found = find_token(client, typed)
            client.revoke_token(found["id"])
            say(sanitized(f"{found['name']} ({found['prefix']}…): revoked"))


def version() -> None:
    """Print the version of this command."""
    say(f"motley {version_of('motley-client')}")


def version_if_asked(asked: bool) -> None:
    """Callback of the option --version: print the version and exit."""
    if asked:
        version()
        raise typer.Exit


def _asked(question: str, *, default: str | None = None, hidden: bool = False) -> str:
    """The answer typed on the terminal; without a terminal, the next line of standard input."""
    if sys.stdin.isatty():
        return str(typer.prompt(question, default=default, hide_input=hidden, err=True)).strip()
    text = sys.stdin.readline().strip() or default
    if not text:
        raise ConfigurationError(f"{question}: standard input is empty. Run this in a terminal, or pipe the value in.")
    return text


def _allowed(me: Me) -> str:
    everything = "do everything that you are allowed to do"
    able = {"read": "only read", "submit": "submit and change jobs", "admin": everything}
    return f"This token can {able.get(me['scope'] or '', everything)}."


def _warn_of_environment() -> None:
    for name in ("MOTLEY_URL", "MOTLEY_TOKEN"):
        if os.environ.get(name):
            warn(f"{name} is set in the environment and overrides the file.")
