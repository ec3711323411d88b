"""Frames between a session and its client: a kind, the number of a connection, and bytes.

The header is `>BII`: kind, connection (0 but for ports) and length. The client begins with `REQUEST`.
"""

import struct
import threading
from enum import IntEnum
from typing import BinaryIO, NamedTuple

HEADER = struct.Struct(">BII")
LARGEST_BYTES = 1024 * 1024


class Kind(IntEnum):
    """Kinds of frames."""

    REQUEST = 0
    """JSON: `{"argv": [...] or null, "terminal": {"rows", "columns", "term"} or null}` or `{"port": 8888}`."""
    DATA = 1
    """Standard input or output, or the bytes of a connection."""
    ERROR = 2
    """Standard error, or why a connection failed."""
    RESIZE = 3
    """JSON: `{"rows", "columns"}` of the terminal."""
    END = 4
    """No more input, or the end of a connection."""
    EXIT = 5
    """Exit code of the command, as digits; the last frame."""
    OPEN = 6
    """A new connection to the port; JSON: `{"network", "port"}` where the client listens on 127.0.0.1, or nothing."""


class Frame(NamedTuple):
    kind: Kind
    connection: int
    data: bytes


class BrokenFrame(Exception):
    """The other side does not speak this protocol."""


class Frames:
    """Frames over two streams; several threads may send."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._sending = threading.Lock()

    def receive(self) -> Frame | None:
        """The next frame; None at the end."""
        header = self._incoming.read(HEADER.size)
        if len(header) < HEADER.size:
            return None
        kind, connection, length = HEADER.unpack(header)
        if kind not in Kind.__members__.values() or length > LARGEST_BYTES:
            raise BrokenFrame
        data = self._incoming.read(length)
        return Frame(Kind(kind), connection, data) if len(data) == length else None

    def send(self, kind: Kind, data: bytes = b"", connection: int = 0) -> None:
        with self._sending:
            self._outgoing.write(HEADER.pack(kind, connection, len(data)) + data)
            self._outgoing.flush()
