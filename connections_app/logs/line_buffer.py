"""Lines of a stream whose bytes are received in parts, in bounded memory. Pure."""

from collections.abc import Iterator
from typing import NamedTuple

LONGEST_LINE_BYTES = 64 * 1024
"""Of a longer line the beginning of what a terminal would show of it is kept, and its length."""


class ReceivedLine(NamedTuple):
    """A line without its newline: at most `LONGEST_LINE_BYTES` of its `length` bytes; `end`: offset after its newline.

    Where a long line has carriage returns, what they overwrote is neither kept nor counted.
    """

    data: bytes
    length: int
    end: int


class LineBuffer:
    """The line that is being received: its visible part begins at the offset `begin`; the log was read up to `read`."""

    def __init__(self, begin: int, read: int, head: bytes = b"", last: bytes = b"") -> None:
        """`head`: what is kept of the bytes from `begin` to `read`; `last`: the last one of these."""
        self.begin, self.read, self.head, self._last = begin, read, head, last

    @property
    def length(self) -> int:
        return self.read - self.begin

    def take(self, data: bytes) -> Iterator[ReceivedLine]:
        """Receive more bytes; yields the lines that they end."""
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._extend(piece)
            yield ReceivedLine(self.head, self.length, self.read + 1)
            self.begin = self.read = self.read + 1
            self.head = self._last = b""
        self._extend(rest)

    def _extend(self, piece: bytes) -> None:
        if not piece:
            return
        is_whole = len(self.head) == self.length
        shown, at = (self.head + piece, self.begin) if is_whole else (piece, self.read)
        self.read += len(piece)
        if self.length <= LONGEST_LINE_BYTES:
            self.head = shown
        elif (overwritten := self._overwritten(shown, is_whole)) is not None:
            self.begin, self.head = at + overwritten, shown[overwritten:][:LONGEST_LINE_BYTES]
        elif is_whole:
            self.head = shown[:LONGEST_LINE_BYTES]
        self._last = piece[-1:]

    def _overwritten(self, shown: bytes, is_whole: bool) -> int | None:
        """Number of bytes that a carriage return has a terminal overwrite: one at the end may belong to the newline."""
        visible = shown.rstrip(b"\r")
        at = visible.rfind(b"\r") + 1
        follows_return = bool(visible) and not is_whole and self._last == b"\r"
        return at if at or follows_return else None
