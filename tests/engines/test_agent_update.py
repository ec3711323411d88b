"""Change of an agent's program: it is fetched, tried, used, and taken back when it is not heard."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from zipfile import ZipFile

import pytest

from engines.agent.connection import Connection
from engines.agent.program import RELEASE, Program, digest_of, unpack
from engines.agent.update import HEARD_WITHIN_S, PASSING_S, RETRY_S, Updates
from engines.attempt_files import read_json, write_json
from tests.deployment import wait_for

OLD = "0" * 12
RUNS, FAILS = "import sys; sys.exit(0)", "import nothing_that_is_here"
FAULT = "ModuleNotFoundError: No module named 'nothing_that_is_here'"
PATH = "/agent/motley-agent.pyz"


def an_archive(path: Path, content: str) -> Path:
    with ZipFile(path, "w") as packed:
        packed.writestr("engines/__init__.py", "")
        packed.writestr("engines/agent/__init__.py", "")
        packed.writestr("engines/agent/__main__.py", content)
        packed.writestr(RELEASE, "9.9")
    return path


class Served:
    """A service that serves one program."""

    def __init__(self, content: bytes) -> None:
        self.path, self.asked = PATH, 0
        service = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                service.asked += 1
                self.send_response(200 if self.path == service.path else 502)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None: ...

        self.server = HTTPServer(("127.0.0.1", 0), Answers)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.connection = Connection(f"http://127.0.0.1:{self.server.server_port}", "token")


Serve = Callable[[str], tuple[Served, str]]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    started: list[Served] = []

    def serving(content: str) -> tuple[Served, str]:
        archive = an_archive(tmp_path / "served.pyz", content)
        started.append(Served(archive.read_bytes()))
        return started[-1], digest_of(archive)

    yield serving
    for one in started:
        one.server.shutdown()
        one.server.server_close()


class Machine:
    """A server with an old program: what it becomes is noted, and its time is told."""

    def __init__(self, folder: Path, connection: Connection) -> None:
        self.folder, self.connection = folder, connection
        self.became: list[str] = []
        self.now_s = 1000.0
        (folder / "program" / OLD).mkdir(parents=True)

    def updates(self, digest: str = OLD) -> Updates:
        program = Program(self.folder / "program", digest, "1.0")
        note = lambda folder: self.became.append(folder.name)  # noqa: E731
        return Updates(self.folder, program, note, lambda: self.now_s)

    def change(self, updates: Updates, digest: str) -> None:
        """Repeat the order, as the service does, until something comes of it."""
        known = [*self.became], updates.failure().said

        def has_come() -> bool:
            updates.change(self.connection, digest)
            return ([*self.became], updates.failure().said) != known

        wait_for("the order is followed", has_come, pause_s=0.01)


def test_a_program_that_is_heard_stays(tmp_path: Path, serve: Serve) -> None:
    served, digest = serve(RUNS)
    machine = Machine(tmp_path, served.connection)
    machine.change(machine.updates(), digest)
    assert machine.became == [digest]
    after = machine.updates(digest)
    after.heard()
    machine.now_s += 2 * HEARD_WITHIN_S
    after.watch()
    assert (machine.became, after.failure().said) == ([digest], "")


def test_a_program_that_is_not_heard_goes_back_and_says_so(tmp_path: Path, serve: Serve) -> None:
    served, digest = serve(RUNS)
    machine = Machine(tmp_path, served.connection)
    machine.change(machine.updates(), digest)
    after = machine.updates(digest)
    after.watch()
    assert machine.became == [digest]
    machine.now_s += HEARD_WITHIN_S
    after.watch()
    assert machine.became == [digest, OLD]
    back = machine.updates()
    back.heard()
    back.watch()
    assert machine.became == [digest, OLD]
    assert back.failure().said == f"The program {digest} was not heard within 60 s, and was taken back."
    for _ in range(2):  # the order comes once more, until the service has heard of the fault
        machine.now_s += 2 * RETRY_S
        back.change(machine.connection, digest)
    assert (machine.became, back.is_preparing()) == ([digest, OLD], False)


def test_a_program_of_before_a_boot_has_its_minute_after_it(tmp_path: Path, serve: Serve) -> None:
    """As where it ends before its first turn: each start of it looks first."""
    served, digest = serve(RUNS)
    machine = Machine(tmp_path, served.connection)
    machine.change(machine.updates(), digest)
    note = tmp_path / "update.json"
    write_json(note, {**read_json(note), "boot": "another"})
    machine.now_s = 5.0
    machine.updates(digest).watch()
    assert machine.became == [digest]
    machine.now_s += HEARD_WITHIN_S
    machine.updates(digest).watch()
    assert machine.became == [digest, OLD]


def test_a_program_that_does_not_run_is_not_used(tmp_path: Path, serve: Serve) -> None:
    served, digest = serve(FAILS)
    machine = Machine(tmp_path, served.connection)
    updates = machine.updates()
    machine.change(updates, digest)
    assert machine.became == []
    assert updates.failure().said == f"The program {digest} could not be used: {FAULT}"


def test_a_program_that_failed_is_tried_again_when_an_administrator_asks(tmp_path: Path, serve: Serve) -> None:
    """Once for each time that they ask: the order is repeated until the service has heard what came of it."""
    served, digest = serve(FAILS)
    machine = Machine(tmp_path, served.connection)
    updates = machine.updates()
    machine.change(updates, digest)
    for _ in range(2):
        updates.change(machine.connection, digest, 1)
        wait_for("it was tried", lambda: updates.failure().tries == 1 and not updates.is_preparing(), pause_s=0.01)
    assert (served.asked, updates.failure()) == (2, (f"The program {digest} could not be used: {FAULT}", 1))
    assert Machine.updates(machine).failure().tries == 1


def test_a_fault_that_may_pass_is_no_fault_of_the_program(tmp_path: Path, serve: Serve) -> None:
    """As while the service is upgraded: it serves another one, or none. The order is tried again after a while."""
    served, digest = serve(RUNS)
    machine = Machine(tmp_path, served.connection)
    updates = machine.updates()
    served.path = "/elsewhere"
    updates.change(machine.connection, digest)
    wait_for("it was tried", lambda: served.asked == 1 and not updates.is_preparing(), pause_s=0.01)
    served.path = PATH
    updates.change(machine.connection, digest)
    assert (machine.became, updates.failure().said, served.asked) == ([], "", 1)
    machine.now_s += PASSING_S
    machine.change(updates, digest)
    assert (machine.became, served.asked) == ([digest], 2)
    updates.change(machine.connection, "f" * 12)
    wait_for("it was tried", lambda: served.asked == 3 and not updates.is_preparing(), pause_s=0.01)
    assert updates.failure().said == ""


def test_a_program_from_sources_is_not_changed(tmp_path: Path, serve: Serve) -> None:
    served, digest = serve(RUNS)
    machine = Machine(tmp_path, served.connection)
    machine.updates("").change(machine.connection, digest)
    assert machine.became == []
    assert Program.own().digest == ""


def test_the_folder_of_a_program_has_its_digest_for_a_name(tmp_path: Path) -> None:
    archive = an_archive(tmp_path / "one.pyz", RUNS)
    folder = unpack(archive, tmp_path / "prefix")
    assert (folder.name, (folder / RELEASE).read_text()) == (digest_of(archive), "9.9")
    inode = folder.stat().st_ino
    assert unpack(archive, tmp_path / "prefix").stat().st_ino == inode


def test_a_program_that_lost_the_content_of_its_files_is_unpacked_anew(tmp_path: Path) -> None:
    archive = an_archive(tmp_path / "one.pyz", RUNS)
    folder = unpack(archive, tmp_path / "prefix")
    (folder / "engines" / "agent" / "__main__.py").write_bytes(b"")
    unpack(archive, tmp_path / "prefix")
    assert (folder / "engines" / "agent" / "__main__.py").read_text() == RUNS
    assert [path.name for path in (tmp_path / "prefix").iterdir()] == [folder.name]
