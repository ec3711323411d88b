"""Who asks: login and logout, and tokens."""

import os
import sys
from importlib.metadata import version as version_of
from typing import Annotated

import typer

from motley_client.answers import Me, Scope
from motley_client.client import Client
from motley_client.completion import tokens as known_tokens
from motley_client.configuration import Configuration, ConfigurationError, configuration_file, read_file, write_file
from motley_client.inert import inert
from motley_client.lookup import connect, find_token
from motley_client.tables.account import me_details, tokens_table
from motley_client.terminal import Output, OutputOption, emit, now, say, warn

token = typer.Typer(no_args_is_help=True, help="Your tokens: create, list, revoke.")


def login(
    context: typer.Context,
    url: Annotated[str | None, typer.Argument(help="The address of the service.")] = None,
) -> None:
    """Keep the address of a service and a token, of its page Tokens, for the commands that follow.

    The token is asked for, or read from a pipe: motley login https://motley.example < token.txt
    """
    file = configuration_file(os.environ)
    known = url or context.obj["url"] or os.environ.get("MOTLEY_URL") or read_file(file).get("url")
    address = (url or context.obj["url"] or _asked("The address of the service", default=known)).rstrip("/")
    text = context.obj["token"] or _asked(f"A token, of {address}/tokens", hidden=True)
    with Client(address, text) as client:
        me = client.me()
    write_file(file, Configuration(address, text))
    say(f"You are {inert(me['username'])} at {inert(address)}. {_may(me)}")
    say(f"  the token is in {file}, which only you can read")
    _warn_of_environment()


def logout() -> None:
    """Forget the token that login kept. It stays valid: motley token revoke ends it."""
    file = configuration_file(os.environ)
    saved = read_file(file)
    if "token" not in saved:
        say(f"There is no token in {file}.")
        return
    write_file(file, Configuration(saved.get("url", ""), ""))
    say(f"The token is no longer in {file}. It is valid until it expires or is revoked.")
    _warn_of_environment()


def me(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """Say who you are to the service, in which teams, and what your token may do."""
    with connect(context) as client:
        answer = client.me()
    emit(output, answer, names=[answer["username"]], table=lambda: me_details(answer))


@token.command()
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="What will use it.")],
    *,
    scope: Annotated[Scope, typer.Option(help="read looks, submit changes jobs, admin does all that you may.")] = (
        Scope.SUBMIT
    ),
    expires_in: Annotated[str | None, typer.Option(help="As in 30d. Default: never.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a token. Its text is printed once, and can never be read again."""
    with connect(context) as client:
        made = client.create_token(name, scope=scope, expires_in=expires_in)
    if output is not Output.TABLE:
        emit(output, made, names=[made["token"]], table=lambda: "")
        return
    say(made["token"])
    warn("Keep it now: it can never be read again.")


@token.command("list")
def list_tokens(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """List your tokens: what each may do, when it was last used, and until when it is valid."""
    with connect(context) as client:
        found = list(client.tokens())
    emit(output, found, names=[str(one["id"]) for one in found], table=lambda: tokens_table(found, now=now()))


@token.command()
def revoke(
    context: typer.Context,
    tokens: Annotated[
        list[str],
        typer.Argument(metavar="TOKEN...", help="Numbers, names, or how they begin.", autocompletion=known_tokens),
    ],
) -> None:
    """Revoke tokens: whatever uses them is refused from now on."""
    with connect(context) as client:
        for typed in tokens:
            found = find_token(client, typed)
            client.revoke_token(found["id"])
            say(inert(f"{found['name']} ({found['prefix']}…): revoked"))


def version() -> None:
    """Print the version of this command."""
    say(f"motley {version_of('motley-client')}")


def _asked(question: str, *, default: str | None = None, hidden: bool = False) -> str:
    """From the terminal; from a pipe, the next line."""
    if sys.stdin.isatty():
        return str(typer.prompt(question, default=default, hide_input=hidden, err=True)).strip()
    text = sys.stdin.readline().strip() or default
    if not text:
        raise ConfigurationError(f"{question}: give it on a terminal, or through a pipe.")
    return text


def _may(me: Me) -> str:
    able = {"read": "look", "submit": "submit and change jobs", "admin": "do all that you may"}
    return f"This token may {able.get(me['scope'] or '', 'do all that you may')}."


def _warn_of_environment() -> None:
    for name in ("MOTLEY_URL", "MOTLEY_TOKEN"):
        if os.environ.get(name):
            warn(f"{name} is set in the environment, and goes before the file.")
