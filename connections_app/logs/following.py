"""Log lines as server-sent events on an event loop: a follower that waits costs no thread."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from time import monotonic

from django.http import HttpResponse

from connections_app.logs.feed import Feeds, InThread
from connections_app.logs.stream import (
    BLOCK_BYTES,
    CHECK_EVERY_S,
    KEEP_ALIVE,
    LONGEST_S,
    RETRY_S,
    event,
    is_over,
    whole_lines,
)
from engines.protocol import Stream
from jobs_app.models import Attempt, Job

KEEP_ALIVE_S = 15.0
LAUNCH_POLL_S = 2.0


@dataclass(frozen=True)
class Followed:
    """The log that is followed, and from where; `may_go_on` is asked every half a minute."""

    job: Job
    attempt: Attempt | None
    stream: Stream
    rank: int
    offset: int
    may_go_on: Callable[[], bool]


class FollowingResponse(HttpResponse):
    """Status and header fields of a stream; the server of long requests sends its events, and calls `give_back`."""

    def __init__(self, followed: Followed, give_back: Callable[[], None], headers: dict[str, str]) -> None:
        super().__init__(content_type="text/event-stream", headers=headers)
        self.followed, self.give_back = followed, give_back


async def events_of(followed: Followed, feeds: Feeds, in_thread: InThread) -> AsyncIterator[bytes]:
    """The events of a log until its attempt has ended, an hour has passed, or the caller may no longer see it."""
    yield f"retry: {1000 * RETRY_S}\n\n".encode()
    until = monotonic() + LONGEST_S
    while (attempt := await in_thread(_launched, followed)) is None:
        if is_over(followed.job, followed.attempt):
            yield event("eof", "", followed.offset)
            return
        if monotonic() > until or not await in_thread(followed.may_go_on):
            return
        yield KEEP_ALIVE
        await asyncio.sleep(LAUNCH_POLL_S)
    async for data in _lines_of(followed, attempt, feeds, in_thread, until):
        yield data


async def _lines_of(
    followed: Followed, attempt: Attempt, feeds: Feeds, in_thread: InThread, until: float
) -> AsyncIterator[bytes]:
    feed = feeds.join(attempt, followed.stream, followed.rank)
    offset, held, check_at_s = followed.offset, b"", monotonic() + CHECK_EVERY_S
    try:
        while monotonic() < until:
            if monotonic() > check_at_s:
                check_at_s = monotonic() + CHECK_EVERY_S
                if not await in_thread(followed.may_go_on):
                    return
            grown = feed.grown
            chunk = await feed.read(offset + len(held))
            whole, held = whole_lines(held + chunk.data, last=chunk.eof)
            if whole:
                offset += len(whole)
                yield event("log", whole.decode(errors="replace"), offset)
            if chunk.eof:
                yield event("eof", "", offset)
                return
            if len(chunk.data) < BLOCK_BYTES and grown is feed.grown:
                await feed.wait(KEEP_ALIVE_S)
                if grown is feed.grown:
                    yield KEEP_ALIVE
    finally:
        feeds.leave(feed)


def _launched(followed: Followed) -> Attempt | None:
    """The attempt, if it has been launched."""
    followed.job.refresh_from_db(fields=["state"])
    found = followed.attempt or followed.job.attempts.exclude(launched_at=None).last()
    if found and not found.launched_at:
        found.refresh_from_db()
    return found if found and found.launched_at else None
