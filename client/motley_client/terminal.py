"""What the command writes, and how: a table for people, JSON and YAML for programs, names for the next command."""

import json
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from enum import StrEnum

import yaml
from rich.console import Console, RenderableType

from motley_client.inert import inert, inert_log

PLAIN_WIDTH = 10_000
"""Where nobody looks, lines are not cut: a pipe has no width."""


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


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
