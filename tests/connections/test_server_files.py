"""A file on a server, through the agent's answers, the relay and the process that joins, to a reader."""

import asyncio
import os
import queue
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic

import pytest

from connections_app.agents.files import MOST_FOR_A_SERVER, MOST_WAITING, a_place_for, answer_to
from connections_app.job_folder import FileBlocks
from connections_app.sessions.relay import Relay
from engines.agent.files import Answer, Question, serve_files
from engines.job_files import MOST_BYTES, MOST_LISTED
from engines.local.engine import LocalEngine
from engines.protocol import EngineError, JobFile, OpenedFile, SessionCommand
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
        with suppress(RuntimeError):  # the loop is closed: nobody reads any more
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


@contextmanager
def asked(folder: Path, question: Question) -> Iterator[tuple[socket.socket, Answer]]:
    """The answer of an agent whose jobs have their files below this folder, and the connection to it."""
    engine = LocalEngine(folder / "engine", declared=["gpu1"])
    meeting, ends = folder / f"7.0.{'a' * 32}", list[socket.socket]()
    waits = threading.Thread(target=lambda: ends.append(listened(meeting)))
    waits.start()
    wait_for("it listens", meeting.exists, pause_s=0.01)
    relays = threading.Thread(target=asyncio.run, args=(through_the_relay(engine, meeting),))
    relays.start()
    waits.join()
    yield ends[0], answer_to(ends[0], question, "gpu1", monotonic() + 60)
    ends[0].close()
    relays.join(60)
    assert not relays.is_alive()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "engine" / "jobs" / JOB / "work"
    folder.mkdir(parents=True)
    return folder


def test_a_large_file_comes_whole_however_slowly_it_is_read(tmp_path: Path, work: Path) -> None:
    """The agent has sent all long before: it does not end the connection, with which the rest would be lost."""
    content = os.urandom(4 << 20)
    (work / "model.pt").write_bytes(content)
    with asked(tmp_path, Question(JOB, "work/model.pt", is_folder=False)) as (connection, answer):
        blocks = FileBlocks(OpenedFile(connection.detach(), answer.size, is_remote=True), start=5)
        assert b"".join(blocks) == content[5:]
        blocks.close()


def test_a_folder_with_many_long_names_is_listed(tmp_path: Path, work: Path) -> None:
    """Letters that are not ASCII, and bytes that are no letters."""
    for number in range(MOST_LISTED):
        os.close(os.open(os.fsencode(work) + b"/%04d" % number + b"\xff" * 251, os.O_CREAT))
    (work / ("\u0436" * 127)).touch()
    with asked(tmp_path, Question(JOB, "work", is_folder=True)) as (_, answer):
        assert len(answer.files) == MOST_LISTED


def test_questions_wait_in_few_places_and_fewer_for_one_server() -> None:
    with ExitStack() as taken:
        for _ in range(MOST_FOR_A_SERVER):
            taken.enter_context(a_place_for("gpu1"))
        with pytest.raises(EngineError, match="try again in a few seconds"), a_place_for("gpu1"):
            pass
        for _ in range(MOST_WAITING - MOST_FOR_A_SERVER):
            taken.enter_context(a_place_for("gpu2"))
        with pytest.raises(EngineError), a_place_for("gpu3"):
            pass
    with a_place_for("gpu1"):
        pass


@pytest.mark.parametrize("size", [-1, MOST_BYTES + 1, 2**62])
@pytest.mark.parametrize("is_folder", [False, True])
def test_a_size_that_no_file_has_is_refused(size: int, is_folder: bool) -> None:
    ours, theirs = socket.socketpair()
    listed = JobFile("model.pt", is_folder=False, is_file=True, size=size, modified_at=datetime.now(UTC))
    theirs.sendall((Answer(files=[listed]) if is_folder else Answer(size=size)).line())
    with ours, theirs, pytest.raises(EngineError, match="The server gpu1 told a size that no file has"):
        answer_to(ours, Question(JOB, "work", is_folder=is_folder), "gpu1", monotonic() + 60)


def test_an_answer_that_does_not_come_is_not_waited_for() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(EngineError, match="The server gpu1 did not answer"):
        answer_to(ours, Question(JOB, "work", is_folder=True), "gpu1", monotonic())
