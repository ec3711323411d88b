"""Colours of terminal output (ECMA-48, "select graphic rendition") as styled pieces of plain text. Pure.

A style is a set of words, each the name of a class of the pages' style sheet; colours beyond the 16 named ones become
the nearest of those, as pages have no inline styles. The text of a piece is never HTML.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from connections_app.logs.reading import readable

SGR = re.compile(r"\x1b\[([0-9;:]{0,64})m")
COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
RGB = (
    *((0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0), (0, 0, 238), (205, 0, 205), (0, 205, 205), (229, 229, 229)),
    *((127, 127, 127), (255, 0, 0), (0, 255, 0), (255, 255, 0), (92, 92, 255), (255, 0, 255), (0, 255, 255)),
    (255, 255, 255),
)
"""The 16 colours as xterm draws them."""
FLAGS = {1: "bold", 2: "faint", 3: "italic", 4: "underlined", 7: "inverse"}
ENDED_BY = {22: ("bold", "faint"), 23: ("italic",), 24: ("underlined",), 27: ("inverse",)}
CUBE = (0, 95, 135, 175, 215, 255)
MOST_PIECES = 200
"""Of one line: what comes after is not coloured."""


class Piece(NamedTuple):
    """Text of one style: class names, with spaces between; empty: plain."""

    text: str
    style: str


class Style(NamedTuple):
    ink: str = ""
    ground: str = ""
    flags: frozenset[str] = frozenset()

    @property
    def classes(self) -> str:
        return " ".join(filter(None, (self.ink, self.ground, *sorted(self.flags))))


PLAIN = Style()


def styled(line: bytes, style: Style = PLAIN) -> tuple[list[Piece], Style]:
    """A line as a terminal shows it in the end, in pieces, and the style that holds at its end."""
    text = line.decode(errors="replace")
    if text.isprintable():  # most lines, and far faster
        return [Piece(text, style.classes)] if text else [], style
    text, pieces = _last_written(text), list[Piece]()
    for plain, codes in _runs(text):
        if shown := readable(plain.encode(errors="replace")):
            pieces.append(Piece(shown, style.classes))
        if codes is not None:
            style = _after(codes, style)
    if len(pieces) > MOST_PIECES:
        rest = "".join(piece.text for piece in pieces[MOST_PIECES:])
        pieces = [*pieces[:MOST_PIECES], Piece(rest, "")]
    return pieces, style


def _last_written(text: str) -> str:
    """What is left of a line after its carriage returns, with the style changes of what was overwritten."""
    overwritten, _, shown = text.rstrip("\r").rpartition("\r")
    return "".join(match.group() for match in SGR.finditer(overwritten)) + shown


def _runs(text: str) -> Iterator[tuple[str, list[int] | None]]:
    """Each run of text with the codes that come after it."""
    at = 0
    for match in SGR.finditer(text):
        yield text[at : match.start()], [int(code or 0) for code in re.split("[;:]", match.group(1))]
        at = match.end()
    yield text[at:], None


def _after(codes: Sequence[int], style: Style) -> Style:
    """The style after one sequence of codes."""
    left = list(codes)
    while left:
        code = left.pop(0)
        style = _coloured(style, code == 48, _extended(left)) if code in (38, 48) else _after_one(code, style)
    return style


def _after_one(code: int, style: Style) -> Style:
    if code in FLAGS:
        return style._replace(flags=style.flags | {FLAGS[code]})
    if code in ENDED_BY:
        return style._replace(flags=style.flags - set(ENDED_BY[code]))
    if code in (39, 49):
        return _coloured(style, code == 49, None)
    for first, offset in ((30, 0), (40, 0), (90, 8), (100, 8)):
        if first <= code < first + len(COLOURS):
            return _coloured(style, first in (40, 100), code - first + offset)
    return PLAIN if code == 0 else style


def _coloured(style: Style, is_ground: bool, colour: int | None) -> Style:
    if colour is None:
        return style._replace(ground="") if is_ground else style._replace(ink="")
    name = f"{'bright-' if colour >= len(COLOURS) else ''}{COLOURS[colour % len(COLOURS)]}"
    return style._replace(ground=f"on-{name}") if is_ground else style._replace(ink=f"in-{name}")


def _extended(left: list[int]) -> int | None:
    """The colour of `5;n` or `2;r;g;b`, which are taken off the list; None: not understood."""
    kind = left.pop(0) if left else 0
    if kind == 5 and left:
        return _of_256(left.pop(0))
    if kind == 2 and len(left) >= 3:
        red, green, blue = left[:3]
        del left[:3]
        return _nearest(red, green, blue)
    left.clear()
    return None


def _of_256(number: int) -> int | None:
    if number < 16:
        return number
    if number < 232:
        cube = number - 16
        return _nearest(CUBE[cube // 36], CUBE[cube // 6 % 6], CUBE[cube % 6])
    grey = 8 + 10 * (number - 232)
    return _nearest(grey, grey, grey) if number < 256 else None


def _nearest(*colour: int) -> int:
    return min(range(len(RGB)), key=lambda n: sum((a - b) ** 2 for a, b in zip(RGB[n], colour, strict=True)))
