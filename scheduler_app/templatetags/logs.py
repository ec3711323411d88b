"""Template filter that draws lines of a merged log."""

from collections.abc import Iterable

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from scheduler_app.logs.ansi import Piece
from scheduler_app.logs.lines import ShownLine

register = template.Library()


@register.filter
def log_lines(lines: Iterable[ShownLine]) -> SafeString:
    """Each line in an element with its time, stream and rank; its text escaped, its colours as classes."""
    return format_html_join("", "{}", ((_line(line),) for line in lines))


def _line(line: ShownLine) -> SafeString:
    at = format_html(' data-at="{}" data-mark="{} "', line.at.isoformat(), f"{line.at:%H:%M:%S}") if line.at else ""
    pieces = format_html_join("", "{}", ((_piece(piece),) for piece in line.pieces))
    return format_html(
        '<span class="log-line {}" data-stream="{}" data-rank="{}"{}>{}\n</span>',
        line.stream.value,
        line.stream.value,
        line.rank,
        at,
        pieces,
    )


def _piece(piece: Piece) -> SafeString | str:
    return format_html('<span class="{}">{}</span>', piece.style, piece.text) if piece.style else piece.text
