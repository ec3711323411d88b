"""Terminal output: text from others without control characters, output formats, `--watch`, logs."""

import codecs
import json
import os
import re
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, NoReturn, TypeVar

import typer
import yaml
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from motley_client.errors import Unreachable
from motley_client.responses import LogLine, LogPiece

T = TypeVar("T")

PLAIN_WIDTH = 10_000
"""Width of output that is not a terminal: lines are never cut."""
WATCH_PERIOD_S = 2.0
FLAGS = {"bold": "1", "faint": "2", "italic": "3", "underlined": "4", "inverse": "7"}
COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
GROUNDS = {"in": 30, "on": 40}
_COLOUR = r"\x1b\[[0-9;:]*m"
_SPACED = str.maketrans("\n\t", "  ")
_KEPT_IN_LOGS = re.compile(rf"({_COLOUR}|[\n\r\t])")
_UNFINISHED = re.compile(r"\x1b(?:\[[0-9;:]{0,32})?\Z")


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Output format; name prints only names or ids.")]
WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Refresh every two seconds until Ctrl-C.")]


def sanitized(text: str) -> str:
    """The text without control characters and invisible format characters, which could reprogram a terminal.

    Names, messages and error texts come from other users: none may move the cursor, retitle the window or reorder text.
    Line breaks and tabs become spaces: the text is one line, and words stay apart.
    """
    spaced = text.translate(_SPACED)
    return "".join(character for character in spaced if unicodedata.category(character) not in {"Cc", "Cf", "Cs"})


def sanitized_lines(text: str) -> str:
    """A text of several lines, such as a script: line breaks and indentation stay, other control characters do not."""
    return "\n".join(sanitized(line.expandtabs()) for line in text.rstrip("\n").split("\n"))


def sanitized_log(chunks: Iterable[bytes]) -> Iterator[str]:
    """A log for a terminal: newlines, carriage returns, tabs and colours stay, other control sequences do not."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    held = ""
    for chunk in chunks:
        text = held + decoder.decode(chunk)
        unfinished = _UNFINISHED.search(text)
        end = unfinished.start() if unfinished else len(text)
        held = text[end:]
        yield _without_controls(text[:end])
    yield _without_controls(held + decoder.decode(b"", final=True))


def _without_controls(text: str) -> str:
    if text.isprintable():  # as most lines are, and far faster
        return text
    return "".join(part if _KEPT_IN_LOGS.fullmatch(part) else sanitized(part) for part in _KEPT_IN_LOGS.split(text))


def now() -> datetime:
    """The current time in UTC."""
    return datetime.now(UTC)


def console(*, stderr: bool = False) -> Console:
    """Rich console that prints text literally: no markup, no emoji codes, no highlighting."""
    wide = not (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False, width=PLAIN_WIDTH if wide else None)


def say(text: str) -> None:
    """Print a line on standard output."""
    console().print(text, soft_wrap=True)


def warn(text: str) -> None:
    """Print a line on standard error."""
    console(stderr=True).print(text, soft_wrap=True)


def present(
    read: Callable[[], T],
    *,
    output: Output,
    names: Callable[[T], Iterable[str]],
    table: Callable[[T], RenderableType],
    watch: bool = False,
) -> None:
    """Print what `read` returns in the requested format; with `watch`, a table that is refreshed."""
    if watch:
        _watch(lambda: table(read()), output)
    answer = read()
    emit(output, answer, names=names(answer), table=lambda: table(answer))


def emit(output: Output, answer: object, *, names: Iterable[str], table: Callable[[], RenderableType]) -> None:
    """Print an answer in the requested format. JSON and YAML escape non-ASCII text and so need no sanitizing."""
    match output:
        case Output.TABLE:
            console().print(table())
        case Output.JSON:
            sys.stdout.write(json.dumps(answer, indent=2) + "\n")
        case Output.YAML:
            sys.stdout.write(yaml.safe_dump(answer, sort_keys=False))
        case Output.NAME:
            sys.stdout.writelines(f"{sanitized(name)}\n" for name in names)


def _watch(draw: Callable[[], RenderableType], output: Output) -> NoReturn:
    screen = console()
    if not screen.is_terminal or output is not Output.TABLE:
        raise typer.BadParameter("--watch needs a terminal and table output.")
    with Live(console=screen, auto_refresh=False) as live:
        try:
            last = draw()
            while True:
                live.update(last, refresh=True)
                time.sleep(WATCH_PERIOD_S)
                try:
                    last = draw()
                except Unreachable as error:  # as during an upgrade: show the last answer and why it is not newer
                    live.update(Group(last, Text(f"\n{sanitized(str(error))}", style="yellow")), refresh=True)
                    time.sleep(WATCH_PERIOD_S)
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


def write_log(chunks: Iterable[bytes]) -> None:
    """Write a log to standard output: unchanged to a pipe or file, sanitized to a terminal."""
    if sys.stdout.isatty():
        for text in sanitized_log(chunks):
            sys.stdout.write(text)
            sys.stdout.flush()
    else:
        for chunk in chunks:
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()


def write_lines(lines: Iterable[LogLine], *, have_ranks: Callable[[], bool]) -> None:
    """Write lines of a merged log as they come: with the colours that the job asked for only to a terminal.

    Whether ranks are marked is asked at the first line: before, nobody knows how many a job that waits will have.
    """
    mark, colours = False, sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for number, line in enumerate(lines):
        mark = have_ranks() if number == 0 else mark
        text = "".join(coloured(piece) if colours else _without_controls(piece["text"]) for piece in line["pieces"])
        sys.stdout.write(f"[{line['rank']}] {text}\n" if mark else f"{text}\n")
        sys.stdout.flush()


def coloured(piece: LogPiece) -> str:
    """The text of a piece between the terminal sequences of its style."""
    codes = [code for word in piece["style"].split() if (code := _code_of(word))]
    text = _without_controls(piece["text"])
    return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if codes else text


def _code_of(word: str) -> str:
    """Code (ECMA-48, "select graphic rendition") of a word such as `bold`, `in-red` or `on-bright-blue`."""
    place, _, colour = word.partition("-")
    name = colour.removeprefix("bright-")
    if word in FLAGS or place not in GROUNDS or name not in COLOURS:
        return FLAGS.get(word, "")
    return str(GROUNDS[place] + COLOURS.index(name) + (60 if name != colour else 0))
