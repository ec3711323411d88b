"""Places (slots) of requests at the servers behind the front: counting semaphores with a bounded first-come queue."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

from front.refusals import Busy
from front.routes import Kind

LONGEST_WAIT_S = 20.0
MOST_WAITING = 500

KEPT_OF_A_SERVER, BULK_OF_A_SERVER = 2, 4


def sizes_of(threads: int) -> dict[Kind, int]:
    """Places of a server by kind: together its threads, so that no request waits for a thread."""
    short = threads - KEPT_OF_A_SERVER - BULK_OF_A_SERVER
    return {Kind.KEPT: KEPT_OF_A_SERVER, Kind.BULK: BULK_OF_A_SERVER, Kind.SHORT: short}


class Places:
    """Places of one kind at several servers; the server with most free places is next."""

    def __init__(self, servers: Sequence[str], each: int) -> None:
        self._free = dict.fromkeys(servers, each)
        self._waiting: deque[asyncio.Future[str]] = deque()

    @asynccontextmanager
    async def place(self) -> AsyncIterator[str]:
        """Hold a place at the server whose name is yielded; raises `Busy`."""
        server = await self._take()
        try:
            yield server
        finally:
            self._give_back(server)

    async def _take(self) -> str:
        server = max(self._free, key=lambda each: self._free[each])
        if self._free[server] > 0:
            self._free[server] -= 1
            return server
        if len(self._waiting) >= MOST_WAITING:
            raise Busy
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        return await self._turn(turn)

    async def _turn(self, turn: asyncio.Future[str]) -> str:
        try:
            async with asyncio.timeout(LONGEST_WAIT_S):
                return await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():  # it was given a place while it gave up
                self._give_back(turn.result())
            with suppress(ValueError):
                self._waiting.remove(turn)
            if isinstance(error, TimeoutError):
                raise Busy from error
            raise

    def _give_back(self, server: str) -> None:
        while self._waiting:
            if not (turn := self._waiting.popleft()).done():
                turn.set_result(server)
                return
        self._free[server] += 1


def places_at(servers: Sequence[str], sizes: Mapping[Kind, int]) -> dict[Kind, Places]:
    return {kind: Places(servers, each) for kind, each in sizes.items()}
