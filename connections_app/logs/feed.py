"""Feeds of logs: one poll of a log and one read of each block for all its followers."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from connections_app.logs.reading import AttemptLog
from engines.protocol import LogChunk, Stream
from jobs_app.models import Attempt

LEAST_POLL_S = 0.5
POLLS_PER_S = 200
"""Of all logs together: with many of them each is polled more rarely."""
ENGINE_FOR_S = 60.0
"""After which the engine and the attempt are looked up again: their rows may have changed."""
BLOCK_BYTES = 64 * 1024
InThread = Callable[..., Awaitable[Any]]
Key = tuple[int, Stream, int]


@dataclass
class Feed:
    """One log, with the blocks read since it last grew."""

    attempt: Attempt
    stream: Stream
    rank: int
    in_thread: InThread
    followers: int = 0
    size: int = -1
    over: bool = False
    reads: dict[int, asyncio.Future[LogChunk]] = field(default_factory=dict)
    grown: asyncio.Event = field(default_factory=asyncio.Event)
    _log: AttemptLog | None = None
    _log_until: float = 0.0

    async def read(self, offset: int) -> LogChunk:
        """A block from the offset; followers at the same offset share one read."""
        done = self.reads.get(offset)
        if done is None or (done.done() and (done.cancelled() or done.exception() is not None)):
            self.reads[offset] = asyncio.ensure_future(self._read(offset, BLOCK_BYTES))
        return await asyncio.shield(self.reads[offset])

    async def wait(self, within_s: float) -> None:
        """Wait until the log has grown or is over, but not for longer than that."""
        grown = self.grown
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await grown.wait()

    async def poll(self) -> None:
        """Look whether the log has grown, and wake its followers."""
        chunk = await self._read(max(self.size, 0), 1)
        if chunk.size != self.size or chunk.eof != self.over:
            self.size, self.over, self.reads = chunk.size, chunk.eof, {}
            grown, self.grown = self.grown, asyncio.Event()
            grown.set()

    async def _read(self, offset: int, limit: int) -> LogChunk:
        chunk: LogChunk = await self.in_thread(self._read_now, offset, limit)
        return chunk

    def _read_now(self, offset: int, limit: int) -> LogChunk:
        if self._log is None or monotonic() > self._log_until:
            self.attempt.refresh_from_db()
            self._log, self._log_until = AttemptLog(self.attempt), monotonic() + ENGINE_FOR_S
        return self._log.read(self.stream, self.rank, offset, limit)


class Feeds:
    """The feeds of a process; a log that nobody follows is not polled."""

    def __init__(self, in_thread: InThread) -> None:
        self._in_thread = in_thread
        self._feeds: dict[Key, Feed] = {}
        self._polls: dict[Key, asyncio.Task[None]] = {}

    def join(self, attempt: Attempt, stream: Stream, rank: int) -> Feed:
        key = (attempt.pk, stream, rank)
        if key not in self._feeds:
            self._feeds[key] = Feed(attempt, stream, rank, self._in_thread)
            self._polls[key] = asyncio.ensure_future(self._poll(self._feeds[key]))
        self._feeds[key].followers += 1
        return self._feeds[key]

    def leave(self, feed: Feed) -> None:
        feed.followers -= 1
        if feed.followers == 0:
            key = (feed.attempt.pk, feed.stream, feed.rank)
            del self._feeds[key]
            self._polls.pop(key).cancel()

    async def _poll(self, feed: Feed) -> None:
        while True:
            with suppress(Exception):  # a follower that reads meets the same error, and ends with it
                await feed.poll()
            await asyncio.sleep(max(LEAST_POLL_S, len(self._feeds) / POLLS_PER_S))
