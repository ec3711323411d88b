"""Colours of terminal output as styled pieces of text."""

import pytest

from connections_app.logs.ansi import PLAIN, Piece, styled
from connections_app.logs.lines import ShownLine
from engines.protocol import Stream
from web.pages.templatetags.logs import log_lines


def pieces(line: str) -> list[tuple[str, str]]:
    return [(piece.text, piece.style) for piece in styled(line.encode())[0]]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("plain", [("plain", "")]),
        ("\x1b[31mred\x1b[0m rest", [("red", "in-red"), (" rest", "")]),
        ("\x1b[1;92mok\x1b[22;39m.", [("ok", "in-bright-green bold"), (".", "")]),
        ("\x1b[44mon blue", [("on blue", "on-blue")]),
        ("\x1b[38;5;196mof 256\x1b[m", [("of 256", "in-bright-red")]),
        ("\x1b[38;2;10;200;10mtrue colour", [("true colour", "in-green")]),
        ("\x1b[48;5;21mground", [("ground", "on-blue")]),
        ("\x1b[4munder\x1b[24m \x1b[7minverse", [("under", "underlined"), (" ", ""), ("inverse", "inverse")]),
        ("\x1b[38;5mbroken", [("broken", "")]),
        ("\x1b[99mnot known", [("not known", "")]),
        ("\x1b]0;title\x07\x1b[2Kclean\x07", [("clean", "")]),
    ],
)
def test_a_line_is_cut_into_styled_pieces(line: str, expected: list[tuple[str, str]]) -> None:
    assert pieces(line) == expected


def test_a_progress_bar_leaves_its_last_state() -> None:
    assert pieces("10%\r\x1b[32m50%\r100%\r") == [("100%", "in-green")]


def test_markup_is_text() -> None:
    assert pieces("\x1b[31m<script>") == [("<script>", "in-red")]


def test_a_style_goes_on_to_the_next_line() -> None:
    _, style = styled(b"\x1b[33mfirst")
    assert styled(b"second", style)[0][0].style == "in-yellow"
    assert styled(b"\x1b[0m", style)[1] == PLAIN


def test_a_line_of_many_colours_ends_plain() -> None:
    found = styled(b"\x1b[31ma\x1b[32mb" * 10_000)[0]
    assert len(found) == 201
    assert "".join(piece.text for piece in found) == "ab" * 10_000


@pytest.mark.parametrize(("ranks", "marked"), [([0, 0], 0), ([0, 1], 2)])
def test_ranks_are_marked_where_there_are_several(ranks: list[int], marked: int) -> None:
    lines = [ShownLine(None, rank, Stream.STDERR, [Piece("<i>", "in-red")]) for rank in ranks]
    drawn = log_lines(lines)
    assert drawn.count("data-gang") == marked
    assert drawn.count('<span class="in-red">&lt;i&gt;</span>\n</span>') == 2
