"""Servers of the site that are played: the messages of their agents over real HTTP, many in one process.

Each is a thread that does what the loop of an agent does, with the agent's own connection and messages. Ranks are no
processes: they are ready a while after their launch has come, and run until they are stopped.
"""

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from engines.agent.agent import NEWS_EVERY_S
from engines.agent.connection import Connection, Unheard
from engines.agent.messages import VERSION, AttemptNews, Condition, Finding, Joining, Orders, Sync
from engines.protocol import AttemptReport, GpuReading, GpuReport, NodeReport, Phase, Stream

GPUS = 8
PREPARE_S = 1.0
"""As long as an agent and the init process of a rank take without code, setup or image."""
READINGS_EVERY_S, CONDITION_EVERY_S = 5.0, 60.0
LINES_EVERY_S, SENDS_EVERY_S = 0.2, 1.0
"""Of a log: as often as `engines.agent.transfers` looks for new bytes."""
FINDINGS = [
    Finding(name, True, f"What the check {name} has found is in order.")
    for name in ("gpus", "service", "clock", "address", "disk", "account")
]


@dataclass
class Rank:
    """A rank of an attempt, as its server sees it."""

    attempt: int
    launched_s: float
    waits: bool
    started_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def is_prepared(self) -> bool:
        return time.monotonic() - self.launched_s >= PREPARE_S

    def start(self) -> None:
        if self.started_at is None and self.is_prepared:
            self.started_at = datetime.now(UTC)

    def news(self) -> AttemptNews:
        if self.ended_at is not None:
            over = AttemptReport(self.attempt, Phase.ENDED, proven_gone=True, exit_code=143)
            return AttemptNews(replace(over, started_at=self.started_at, ended_at=self.ended_at), handed_over=True)
        phase = Phase.LAUNCHING if self.started_at is None else Phase.RUNNING
        report = AttemptReport(self.attempt, phase, started_at=self.started_at)
        return AttemptNews(report, ready=self.waits and self.is_prepared)


@dataclass
class PlayedServer:
    """One server with eight GPUs."""

    url: str
    number: int
    ranks: dict[int, Rank] = field(default_factory=dict)
    heard: str = ""
    messages: int = 0
    unheard: int = 0

    @property
    def name(self) -> str:
        return f"gpu{self.number}"

    @property
    def node(self) -> NodeReport:
        gpus = [GpuReport(index, f"GPU-{self.number:04}-{index}", 81_920) for index in range(GPUS)]
        address = f"10.0.{self.number // 250}.{self.number % 250 + 1}"
        return NodeReport(self.name, "h100", gpus, cpus=96, memory_mib=1 << 20, address=address)

    def join(self, token: str) -> None:
        own = f"agent_{self.name}"
        Connection(self.url, token).join(Joining(VERSION, self.name, own, self.node, gangs=True))
        self._connection = Connection(self.url, own)
        self._next_readings_s = self._next_condition_s = 0.0
        self._told = self._states()

    def work(self, stopped: threading.Event) -> None:
        """Tell and obey, at the pace that the service sets."""
        pause_s = 1.0
        while not self._wait(stopped, pause_s):
            try:
                orders = self._connection.sync(self._news())
            except Unheard:
                self.unheard += 1
                continue
            self.messages += 1
            self.heard, pause_s = orders.mark, orders.pause.total_seconds()
            self._obey(orders)

    def _wait(self, stopped: threading.Event, pause_s: float) -> bool:
        """Whether it is stopped; as an agent does, it ends the pause when a rank has become ready, started or ended."""
        until_s = time.monotonic() + pause_s
        while (left_s := until_s - time.monotonic()) > 0 and not stopped.wait(min(left_s, NEWS_EVERY_S)):
            if self._states() != self._told:
                break
        return stopped.is_set()

    def _states(self) -> list[tuple[int, bool, bool, bool]]:
        found = self.ranks.values()
        return [(one.attempt, one.is_prepared, one.started_at is not None, one.ended_at is not None) for one in found]

    def _news(self) -> Sync:
        now_s = time.monotonic()
        readings: tuple[GpuReading, ...] = ()
        condition = None
        if now_s >= self._next_readings_s:
            self._next_readings_s = now_s + READINGS_EVERY_S
            readings = tuple(GpuReading(index, 87.0, 61_440.0, 512.5, 61.0, 0) for index in range(GPUS))
        if now_s >= self._next_condition_s:
            self._next_condition_s = now_s + CONDITION_EVERY_S
            condition = Condition("0.3.0", "", "3.11.2", FINDINGS)
        for rank in self.ranks.values():
            if not rank.waits:
                rank.start()
        self._told = self._states()
        news = [rank.news() for rank in self.ranks.values()]
        return Sync(VERSION, self.name, self.node, news, gpus=readings, condition=condition, heard=self.heard)

    def _obey(self, orders: Orders) -> None:
        for attempt in orders.forget:
            self.ranks.pop(attempt, None)
        for stop in orders.stops:
            if (rank := self.ranks.get(stop.attempt)) is not None:
                rank.ended_at = rank.ended_at or datetime.now(UTC)
        for attempt in orders.go:
            if (rank := self.ranks.get(attempt)) is not None:
                rank.start()
        for launch in orders.launches:
            self.ranks.setdefault(launch.attempt, Rank(launch.attempt, time.monotonic(), launch.waits))

    def write(self, attempt: int, stopped: threading.Event) -> None:
        """Write lines with their time to the log of an attempt, and send them as often as an agent does."""
        size, data, next_s = 0, b"", time.monotonic()
        while not stopped.wait(LINES_EVERY_S):
            data += f"{time.time()}\n".encode()
            if time.monotonic() >= next_s:
                next_s += SENDS_EVERY_S
                with suppress(Unheard):
                    size = self._connection.append_log(attempt, Stream.STDOUT, 0, size, data)
                    data = b""


def started_last(servers: Iterable[PlayedServer], attempt: int) -> datetime | None:
    """When the last rank of the attempt started; None while one has not."""
    ranks = [server.ranks[attempt] for server in servers if attempt in server.ranks]
    times = [rank.started_at for rank in ranks]
    return max(at for at in times if at) if ranks and all(times) else None
