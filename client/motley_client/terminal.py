"""What the command writes, and how: a table for people, JSON and YAML for programs, names for the next command."""

import json
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, NoReturn, TypeVar

import typer
import yaml
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from motley_client.errors import Unreachable
from motley_client.inert import inert, inert_log

Answer = TypeVar("Answer")

PLAIN_WIDTH = 10_000
"""Where nobody looks, lines are not cut: a pipe has no width."""
WATCH_PERIOD_S = 2.0


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="A table for people, else for programs; name: the names or ids alone.")
]
WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Draw it anew every other second, until Ctrl-C.")]


def now() -> datetime:
    return datetime.now(UTC)


def console(*, stderr: bool = False) -> Console:
    """A console that takes text as it is: no markup, no emoji codes, no guessed colours."""
    wide = not (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False, width=PLAIN_WIDTH if wide else None)


def say(text: str) -> None:
    console().print(text, soft_wrap=True)


def warn(text: str) -> None:
    console(stderr=True).print(text, soft_wrap=True)


def present(
    read: Callable[[], Answer],
    *,
    output: Output,
    names: Callable[[Answer], Iterable[str]],
    table: Callable[[Answer], RenderableType],
    watch: bool = False,
) -> None:
    """What is read, in the form asked for; watched, as a table that is drawn again and again."""
    if watch:
        _watch(lambda: table(read()), output)
    answer = read()
    emit(output, answer, names=names(answer), table=lambda: table(answer))


def emit(output: Output, answer: object, *, names: Iterable[str], table: Callable[[], RenderableType]) -> None:
    """The answer in the form asked for. JSON and YAML escape what is not ASCII, and so are inert by themselves."""
    match output:
        case Output.TABLE:
            console().print(table())
        case Output.JSON:
            sys.stdout.write(json.dumps(answer, indent=2) + "\n")
        case Output.YAML:
            sys.stdout.write(yaml.safe_dump(answer, sort_keys=False))
        case Output.NAME:
            sys.stdout.writelines(f"{inert(name)}\n" for name in names)


def _watch(draw: Callable[[], RenderableType], output: Output) -> NoReturn:
    screen = console()
    if not screen.is_terminal or output is not Output.TABLE:
        raise typer.BadParameter("--watch draws a table on a terminal; without it the answer can go anywhere.")
    with Live(console=screen, auto_refresh=False) as live:
        try:
            last = draw()
            while True:
                live.update(last, refresh=True)
                time.sleep(WATCH_PERIOD_S)
                try:
                    last = draw()
                except Unreachable as error:  # as in an upgrade: the last that was seen, and why it is no newer
                    live.update(Group(last, Text(f"\n{inert(str(error))}", style="yellow")), refresh=True)
                    time.sleep(WATCH_PERIOD_S)
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


def write_log(chunks: Iterable[bytes]) -> None:
    """The bytes as they are for a pipe or a file; for a terminal, only what is harmless to it."""
    if sys.stdout.isatty():
        for text in inert_log(chunks):
            sys.stdout.write(text)
            sys.stdout.flush()
    else:
        for chunk in chunks:
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
