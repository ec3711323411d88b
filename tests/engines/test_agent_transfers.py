"""An agent and a service, or a proxy, that answers badly: what is final, what is sent again, and what is kept."""

import json
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from engines.agent.__main__ import REFUSED
from engines.agent.agent import Agent, mark_path
from engines.agent.checkpoint_uploads import CheckpointUploads
from engines.agent.codec import encode
from engines.agent.connection import OTHER_RELEASE, PROBLEM, ArchiveTooLarge, Connection, Refused, Unheard
from engines.agent.machine import Describe
from engines.agent.messages import Orders, Sync
from engines.agent.transfers import Transfers
from engines.attempt_files import AttemptFolder, read_json, write_json
from engines.local.engine import LocalEngine
from engines.output_order import ORDERED
from engines.protocol import AttemptReport, Launch, NodeLaunch, NodeReport, Phase, StopReason, Stream
from engines.supervision.supervisor import write_exit
from engines.supervision.unpack import CodeNotUnpacked, unpack_code

SAID = {"detail": "No."}
OURS, OF_A_PROXY = {"Content-Type": PROBLEM}, {"Content-Type": "application/json", "Location": "/login"}


class Said(NamedTuple):
    """An answer; `more`: bytes that are announced, and do not come."""

    status: int = 200
    body: bytes = b'{"size": 0}'
    headers: dict[str, str] = {}
    more: int = 0


class Service:
    """The other side of the connection: it says what it was told to, by path."""

    def __init__(self) -> None:
        self.says: Callable[[str], Said] = lambda _: Said()
        self.asked: list[str] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                service.asked.append(self.path)
                said = service.says(self.path)
                self.send_response(said.status)
                for name, value in {**said.headers, "Content-Length": str(len(said.body) + said.more)}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(said.body)

            do_GET = do_POST = do_PUT = answer  # noqa: N815 - the names that http.server calls

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.connection = Connection(f"http://127.0.0.1:{self.server.server_port}", "agent_secret")


@pytest.fixture
def service() -> Iterator[Service]:
    one = Service()
    Thread(target=one.server.serve_forever, daemon=True).start()
    yield one
    one.server.shutdown()
    one.server.server_close()


def ended(folder: Path, attempt: int) -> None:
    """An attempt that ran, and left a checkpoint."""
    files = AttemptFolder(folder / "engine" / "attempts" / str(attempt))
    checkpoints = folder / "engine" / "jobs" / str(attempt) / "checkpoints"
    for path in (files.path, checkpoints):
        path.mkdir(parents=True)
    (checkpoints / "step").write_text("7")
    env = {"MOTLEY_CHECKPOINT_DIR": str(checkpoints), "MOTLEY_JOB_ID": str(uuid4())}
    write_json(files.launch, {"ranks": [{"env": env}]})
    write_exit(files, exit_code=0, started_at=datetime.now(UTC), message="")


@pytest.fixture
def transfers(service: Service, tmp_path: Path) -> Transfers:
    engine = LocalEngine(tmp_path / "engine")
    ended(tmp_path, 1)
    ended(tmp_path, 2)
    uploads = CheckpointUploads(tmp_path, service.connection, engine)
    return Transfers(tmp_path, service.connection, engine, uploads, may_start=lambda: True)


def handed_over(transfers: Transfers) -> list[bool]:
    return [transfers.is_handed_over(attempt) for attempt in (1, 2)]


def test_an_answer_that_is_cut_short_leaves_no_file(service: Service, tmp_path: Path) -> None:
    service.says = lambda _: Said(body=b"half", more=4)
    with pytest.raises(Unheard, match="4 bytes are missing"):
        service.connection.fetch(1, "code", tmp_path / "code")
    assert not (tmp_path / "code").exists()
    with pytest.raises(Unheard):
        service.connection.append_log(1, "stdout", 0, 0, b"x")


def test_an_archive_that_gives_way_is_not_sent_whole(service: Service, tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(bytes(1 << 20))
    answers = iter([True])
    with pytest.raises(Unheard, match="goes first"):
        service.connection.send_checkpoints(1, tmp_path / "archive", may_go_on=lambda: next(answers, False))


def test_one_attempt_whose_checkpoints_cannot_be_packed_delays_no_other(transfers: Transfers, tmp_path: Path) -> None:
    (tmp_path / "outgoing" / "1.tar.gz").mkdir(parents=True)
    transfers.turn()
    assert handed_over(transfers) == [False, True]


def test_a_job_that_removes_its_checkpoints_is_handed_over_all_the_same(transfers: Transfers, tmp_path: Path) -> None:
    (tmp_path / "engine/jobs/1/checkpoints/step").unlink()
    (tmp_path / "engine/jobs/1/checkpoints").rmdir()
    transfers.turn()
    assert handed_over(transfers) == [True, True]


@pytest.mark.parametrize(
    ("said", "is_over"),
    [
        (Said(409, json.dumps(SAID).encode(), OURS), True),
        (Said(404, json.dumps(SAID).encode(), OURS), True),
        (Said(404, json.dumps(SAID).encode(), OF_A_PROXY), False),
        (Said(407, b"log in", OF_A_PROXY), False),
        (Said(302, b"", OF_A_PROXY), False),
        (Said(413, b"too large"), False),
        (Said(413, json.dumps(SAID).encode(), OURS), False),
    ],
)
def test_checkpoints_are_given_up_only_where_the_service_itself_takes_none(
    service: Service, transfers: Transfers, said: Said, is_over: bool
) -> None:
    service.says = lambda path: said if "attempts/1/checkpoints" in path else Said()
    transfers.turn()
    assert handed_over(transfers) == [is_over, True]


def test_an_archive_that_is_too_large_is_not_sent_at_every_turn(service: Service, transfers: Transfers) -> None:
    service.says = lambda path: Said(413) if "checkpoints" in path else Said()
    transfers.turn()
    transfers.turn()
    assert len([path for path in service.asked if "attempts/1/checkpoints" in path]) == 1
    with pytest.raises(ArchiveTooLarge):
        service.connection.append_log(1, "checkpoints", 0, 0, b"x")


def test_a_refusal_before_the_archive_was_read_is_heard(tmp_path: Path) -> None:
    """As a web server answers that hangs up: the rest of the archive cannot be sent."""
    (tmp_path / "archive").write_bytes(bytes(64 << 20))
    refusal = json.dumps(SAID).encode()
    head = f"HTTP/1.1 413 Too Large\r\nContent-Type: {PROBLEM}\r\nContent-Length: {len(refusal)}\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(head.encode() + refusal)

        Thread(target=answer, daemon=True).start()
        connection = Connection(f"http://127.0.0.1:{server.getsockname()[1]}", "agent_secret")
        with pytest.raises(ArchiveTooLarge, match="No"):
            connection.send_checkpoints(1, tmp_path / "archive")


@pytest.mark.parametrize("status", [302, 400, 403, 404, 407, 408, 413, 429, 502])
def test_what_a_proxy_says_ends_no_agent(service: Service, tmp_path: Path, status: int) -> None:
    service.says = lambda _: Said(status, json.dumps(SAID).encode(), OF_A_PROXY)
    assert agent_in(tmp_path, service).turn() is False


@pytest.mark.parametrize("status", [401, 409])
def test_an_agent_ends_when_the_service_itself_refuses_its_token(service: Service, tmp_path: Path, status: int) -> None:
    service.says = lambda _: Said(status, json.dumps(SAID).encode(), OURS)
    with pytest.raises(Refused, match="No"):
        agent_in(tmp_path, service).turn()


def test_an_error_of_the_machine_ends_no_agent(service: Service, tmp_path: Path) -> None:
    def broken(*, has_work: bool) -> NodeReport:
        raise StopIteration

    assert agent_in(tmp_path, service, broken).turn() is False


def desk(*, has_work: bool) -> NodeReport:
    return NodeReport("desk")


def agent_in(folder: Path, service: Service, describe: Describe = desk) -> Agent:
    return Agent(folder, service.connection, LocalEngine(folder / "engine"), describe, notice=timedelta())


def test_checkpoints_that_cannot_be_unpacked_are_no_failure_of_the_job(tmp_path: Path) -> None:
    archive = tmp_path / "cut.tar.gz"
    archive.write_bytes(b"\x1f\x8b cut short")
    files = {"archive": str(archive), "folder": str(tmp_path), "done": str(tmp_path / "done")}
    launch = {"checkpoints": files, "user": None}
    with pytest.raises(CodeNotUnpacked) as raised:
        unpack_code(launch)
    assert raised.value.node_failed


# -- logs --------------------------------------------------------------------------------------------------------


class Stored:
    """Logs at a service that takes so many bytes of each."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.asked: list[str] = []
        self.data: dict[str, bytes] = {}

    def append_log(self, attempt: int, stream: str, rank: int, offset: int, data: bytes) -> int:
        stored = self.data.get(stream, b"")
        self.asked.append(stream)
        if offset == len(stored):
            stored += data[: self.most - offset]
        self.data[stream] = stored
        return len(stored)


@pytest.fixture
def running(tmp_path: Path) -> AttemptFolder:
    folder = AttemptFolder(tmp_path / "engine" / "attempts" / "1")
    folder.path.mkdir(parents=True)
    return folder


def transfers_to(stored: Stored, folder: Path) -> Transfers:
    engine = LocalEngine(folder / "engine")
    uploads = CheckpointUploads(folder, stored, engine)  # type: ignore[arg-type]
    return Transfers(folder, stored, engine, uploads, may_start=lambda: True)  # type: ignore[arg-type]


def test_a_log_of_which_no_more_is_taken_is_not_sent_at_every_turn(running: AttemptFolder, tmp_path: Path) -> None:
    stored = Stored(most=5)
    transfers = transfers_to(stored, tmp_path)
    running.log(Stream.STDOUT, 0).write_bytes(b"0123456789")
    for _ in range(5):
        transfers.turn()
    assert stored.data == {"stdout": b"01234"}
    assert stored.asked == ["stdout", "stdout"]


def test_an_agent_that_begins_anew_goes_on_where_the_log_ends(running: AttemptFolder, tmp_path: Path) -> None:
    stored = Stored(most=100)
    running.log(Stream.STDOUT, 0).write_bytes(b"01234")
    transfers_to(stored, tmp_path).turn()
    running.log(Stream.STDOUT, 0).write_bytes(b"0123456789")
    transfers_to(stored, tmp_path).turn()
    assert stored.data == {"stdout": b"0123456789"}


def test_no_byte_is_sent_before_the_record_of_its_time(
    running: AttemptFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job writes to both streams between two uploads of a turn: the service must not get bytes without records."""
    stored = Stored(most=1000)
    append = stored.append_log
    out, err, order = (running.log(stream, 0) for stream in (*ORDERED, Stream.ORDER))

    def write(record: bytes) -> None:
        with order.open("ab") as records, out.open("ab") as first, err.open("ab") as second:
            records.write(record)
            first.write(b"more\n")
            second.write(b"more\n")

    def append_and_write(*args: Any) -> int:
        size = append(*args)
        write(b"1800000000001 000000000000 000000000000\n")
        return size

    monkeypatch.setattr(stored, "append_log", append_and_write)
    write(b"1800000000000 000000000000 000000000000\n")
    transfers_to(stored, tmp_path).turn()
    assert stored.asked[0] == "order"
    assert {name: len(data) for name, data in stored.data.items() if name != "order"} == {"stdout": 5, "stderr": 5}


def test_a_copy_of_a_machine_ends_before_it_has_sent_a_file(service: Service, tmp_path: Path) -> None:
    ended(tmp_path, 1)
    refusal = json.dumps({**SAID, "code": "forked_agent"}).encode()
    service.says = lambda _: Said(409, refusal, OURS)
    assert agent_in(tmp_path, service).run() == REFUSED
    assert service.asked == ["/api/v1/agent/sync"]


@pytest.mark.parametrize("site", [True, False], ids=["server", "volunteer"])
def test_a_server_of_another_release_keeps_its_jobs_until_it_is_updated(
    service: Service, tmp_path: Path, *, site: bool
) -> None:
    """Under its lease, which is not renewed; a volunteer's machine ends."""
    refusal = json.dumps({**SAID, "code": OTHER_RELEASE}).encode()
    service.says = lambda _: Said(409, refusal, OURS)
    engine = Runs(tmp_path / "engine")
    agent = Agent(tmp_path, service.connection, engine, desk, notice=timedelta(seconds=1), site=site)
    with nullcontext() if site else pytest.raises(Refused):
        assert not agent.turn()


class Runs(LocalEngine):
    """An engine whose attempts run until they are stopped."""

    def poll(self, attempts: Iterable[int]) -> list[AttemptReport]:
        return [AttemptReport(attempt, Phase.RUNNING) for attempt in attempts]

    def stop(self, attempt: int, *, reason: StopReason, grace: timedelta) -> None:
        self.stopped = attempt, grace


def test_what_runs_is_stopped_before_it_is_forgotten(service: Service, tmp_path: Path) -> None:
    ended(tmp_path, 1)
    orders = Orders(timedelta(seconds=60), timedelta(seconds=1), forget=(1,), mark="m1")
    service.says = lambda _: Said(200, json.dumps(encode(orders)).encode())
    engine = Runs(tmp_path / "engine")
    Agent(tmp_path, service.connection, engine, desk, notice=timedelta()).turn()
    assert (engine.stopped, read_json(mark_path(tmp_path))) == ((1, timedelta()), "m1")
    assert (tmp_path / "engine" / "attempts" / "1").exists()


class Begins(Runs):
    """An engine where the launch that waits begins after its attempts were listed."""

    agent: Agent

    def poll(self, attempts: Iterable[int]) -> list[AttemptReport]:
        self.agent._transfers._waiting.clear()
        return super().poll(attempts)


def test_a_launch_that_begins_while_a_message_is_made_is_in_it(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Begins(tmp_path / "engine")
    engine.agent = agent = Agent(tmp_path, service.connection, engine, desk, notice=timedelta())
    agent._transfers.add(Launch(7, job=str(uuid4()), command="true", tasks=[NodeLaunch("desk", {})]))
    told = list[Sync]()
    orders = Orders(timedelta(seconds=60), timedelta(seconds=1), mark="m1")
    monkeypatch.setattr(service.connection, "sync", lambda message: (told.append(message), orders)[1])
    agent.turn()
    assert [one.report.attempt for one in told[0].attempts] == [7]


def test_news_of_an_attempt_does_not_wait_for_the_end_of_a_long_pause(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two hundred servers a pause is five seconds, of which a gang would wait for several."""
    monkeypatch.setattr("engines.agent.agent.NEWS_EVERY_S", 0.01)
    orders = Orders(timedelta(seconds=60), timedelta(seconds=3600), mark="m1")
    service.says = lambda _: Said(200, json.dumps(encode(orders)).encode())
    agent = agent_in(tmp_path, service)
    agent.turn()
    waits = Thread(target=agent._wait, daemon=True)
    waits.start()
    ended(tmp_path, 1)
    waits.join(60)
    assert not waits.is_alive()


def test_an_idle_agent_writes_no_mark_for_each_answer_and_one_with_work_does(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shows what is on its disk; with a job here, a copy of the machine is to be found at the next message."""
    marks = [f"m{number}" for number in range(9)]

    def answer(_: str) -> Said:
        orders = Orders(timedelta(seconds=60), timedelta(seconds=1), mark=marks.pop(0))
        return Said(200, json.dumps(encode(orders)).encode())

    service.says = answer
    agent = agent_in(tmp_path, service)
    monkeypatch.setattr("engines.agent.marks.IDLE_EVERY_S", 3600.0)
    stored = []
    for _ in range(3):
        agent.turn()
        stored.append((read_json(mark_path(tmp_path)), agent._news(agent._reports(), []).heard))
    monkeypatch.setattr("engines.agent.marks.IDLE_EVERY_S", 0.0)
    agent.turn()
    monkeypatch.undo()
    stored.append((read_json(mark_path(tmp_path)), agent._news(agent._reports(), []).heard))
    ended(tmp_path, 1)
    agent.turn()
    stored.append((read_json(mark_path(tmp_path)), agent._news(agent._reports(), []).heard))
    assert stored == [("m0", "m0"), ("m0", "m0"), ("m0", "m0"), ("m3", "m3"), ("m4", "m4")]
