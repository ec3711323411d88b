"""Connections of clients, bounded in number and buffered bytes; the oldest without a whole request is closed first."""

from typing import Protocol

from front.refusals import Busy

MOST_BUFFERED_BYTES = 256 << 20


class Evictable(Protocol):
    buffered: int

    def evict(self) -> None: ...


class Connections:
    """A client that sends its request at once has its answer, however many others send slowly."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._buffered = 0
        self._incomplete: dict[Evictable, None] = {}
        """Without a whole request, the oldest first."""

    def add(self, connection: Evictable) -> None:
        """Count the connection; raises `Busy` if no other can be closed for it."""
        self._count += 1
        if self._count > self._most and not self._evict(next(iter(self._incomplete), None)):
            raise Busy

    def remove(self, connection: Evictable) -> None:
        self._count -= 1
        self._incomplete.pop(connection, None)
        self.free(connection)

    def begin(self, connection: Evictable) -> None:
        """Record that the connection waits for a request, or for the rest of one."""
        self._incomplete[connection] = None

    def complete(self, connection: Evictable) -> None:
        self._incomplete.pop(connection, None)

    def buffer(self, connection: Evictable, size: int) -> None:
        """Count bytes of a body; beyond the limit the connection with most bytes is closed, which may be this one."""
        connection.buffered += size
        self._buffered += size
        if self._buffered > MOST_BUFFERED_BYTES:
            self._evict(max(self._incomplete, key=lambda each: each.buffered, default=None))

    def free(self, connection: Evictable) -> None:
        self._buffered -= connection.buffered
        connection.buffered = 0

    def _evict(self, connection: Evictable | None) -> bool:
        if connection is None:
            return False
        del self._incomplete[connection]
        connection.evict()
        return True
