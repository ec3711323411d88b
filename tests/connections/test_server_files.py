"""A file on a server, through the agent's answers, the relay and the process that joins, to a reader."""

import asyncio
import os
import queue
import socket
import sys
import threading
from datetime import timedelta
from pathlib import Path

from connections_app.agents.files import answer_to
from connections_app.job_folder import FileBlocks
from connections_app.sessions.relay import Relay
from engines.agent.files import Question, serve_files
from engines.local.engine import LocalEngine
from engines.protocol import OpenedFile, SessionCommand
from engines.sessions.meeting import listened
from tests.deployment import wait_for

JOB = "11111111-1111-1111-1111-111111111111"
ROOT = Path(__file__).parents[2]


class Wire:
    """Both ends of the agent's WebSocket, with room for everything: no end waits for the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._to_agent = loop, queue.Queue[bytes | None]()
        self._to_service = asyncio.Queue[bytes | None]()
        self.agent = AgentsEnd(self)

    def to_service(self, data: bytes | None) -> None:
        self._loop.call_soon_threadsafe(self._to_service.put_nowait, data)

    def from_service(self) -> bytes | None:
        return self._to_agent.get(timeout=60)

    async def receive(self) -> bytes | None:
        return await self._to_service.get()

    async def send(self, data: bytes) -> None:
        self._to_agent.put(data)

    async def close(self, code: int, words: str) -> None:
        self._to_agent.put(None)


class AgentsEnd:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def receive(self) -> bytes | None:
        return self._wire.from_service()

    def send(self, data: bytes) -> None:
        self._wire.to_service(data)


def serve(engine: LocalEngine, wire: Wire) -> None:
    serve_files(engine, wire.agent)  # type: ignore[arg-type]  # it has the words of one
    wire.to_service(None)


async def through_the_relay(engine: LocalEngine, path: Path) -> None:
    wire = Wire(asyncio.get_running_loop())
    threading.Thread(target=serve, args=(engine, wire), daemon=True).start()
    argv = [sys.executable, "-m", "engines.sessions.meeting", "join", str(path)]
    command = SessionCommand(argv, ROOT, dict(os.environ))

    async def permitted(in_use: bool) -> bool:
        return True

    await Relay(wire, idle=timedelta(hours=1), check=permitted).run(command, b"")


def test_a_large_file_comes_whole_however_slowly_it_is_read(tmp_path: Path) -> None:
    """The agent has sent all long before: it does not end the connection, with which the rest would be lost."""
    engine, content = LocalEngine(tmp_path / "engine", declared=["gpu1"]), os.urandom(4 << 20)
    work = tmp_path / "engine" / "jobs" / JOB / "work"
    work.mkdir(parents=True)
    (work / "model.pt").write_bytes(content)
    meeting, ends = tmp_path / f"7.0.{'a' * 32}", list[socket.socket]()
    waits = threading.Thread(target=lambda: ends.append(listened(meeting)))
    waits.start()
    wait_for("it listens", meeting.exists, pause_s=0.01)
    relays = threading.Thread(target=asyncio.run, args=(through_the_relay(engine, meeting),))
    relays.start()
    waits.join()
    answer = answer_to(ends[0], Question(JOB, "work/model.pt", is_folder=False), "gpu1")
    blocks = FileBlocks(OpenedFile(ends[0].detach(), answer.size, is_remote=True), start=5)
    assert b"".join(blocks) == content[5:]
    blocks.close()
    relays.join(60)
    assert not relays.is_alive()
