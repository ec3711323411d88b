"""What jobs print."""

from dataclasses import dataclass
from typing import TypedDict


@dataclass(frozen=True)
class LogChunk:
    """Bytes of a log; the next chunk begins at `next_offset`. `complete`: the attempt has ended and this is its end.

    `retry_after_s`: when to ask again, if many follow logs. `size`: bytes of the log now; -1: not known.
    """

    data: bytes
    next_offset: int
    complete: bool
    retry_after_s: int = 0
    size: int = -1


class LogPiece(TypedDict):
    text: str
    style: str
    """Words such as `in-red`, `on-bright-blue`, `bold`; empty: plain."""


class LogLine(TypedDict):
    """A line of a merged log."""

    at: str | None
    """When it was received; None: not known."""
    rank: int
    stream: str
    pieces: list[LogPiece]


class MergedLog(TypedDict):
    """Lines of both streams and all ranks by time; `next`: where the next part begins; `more`: there is one now.

    `end`: up to where the log reached, in a part that did not begin at a cursor.
    """

    attempt: int
    lines: list[LogLine]
    unfinished: list[LogLine]
    next: str
    end: str
    more: bool
    complete: bool
