"""Template filter that draws lines of a merged log."""

from collections.abc import Sequence

from django import template
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from connections_app.logs.ansi import Piece
from connections_app.logs.lines import ShownLine

register = template.Library()


@register.filter
def log_lines(lines: Sequence[ShownLine]) -> SafeString:
    """Each line in an element with its time, stream and rank; its text escaped, its colours as classes.

    Ranks are marked where there are several.
    """
    gang = mark_safe(' data-gang="yes"') if len({line.rank for line in lines}) > 1 else ""
    return format_html_join("", "{}", ((_line(line, gang),) for line in lines))


def _line(line: ShownLine, gang: SafeString | str) -> SafeString:
    at = (
        format_html(' data-at="{}" data-mark="{} "', line.at.isoformat(), f"{timezone.localtime(line.at):%T}")
        if line.at
        else ""
    )
    pieces = format_html_join("", "{}", ((_piece(piece),) for piece in line.pieces))
    return format_html(
        '<span class="log-line {}" data-stream="{}" data-rank="{}"{}{}>{}\n</span>',
        line.stream.value,
        line.stream.value,
        line.rank,
        at,
        gang,
        pieces,
    )


def _piece(piece: Piece) -> SafeString | str:
    return format_html('<span class="{}">{}</span>', piece.style, piece.text) if piece.style else piece.text
