"""Change of an agent's program: it is fetched, tried, used, and taken back when it is not heard."""

import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from zipfile import ZipFile

import pytest

from engines.agent.connection import Connection
from engines.agent.program import RELEASE, Program, digest_of, unpack
from engines.agent.update import HEARD_WITHIN_S, Updates

OLD = "0" * 12
RUNS, FAILS = "import sys; sys.exit(0)", "import nothing_that_is_here"


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
        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200 if self.path == "/agent/motley-agent.pyz" else 404)
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
        return Updates(self.folder, self.connection, program, note, lambda: self.now_s)


def test_a_program_that_is_heard_stays(tmp_path: Path, serve: Serve) -> None:
    served, digest = serve(RUNS)
    machine = Machine(tmp_path, served.connection)
    machine.updates().change(digest)
    assert machine.became == [digest]
    after = machine.updates(digest)
    after.heard()
    machine.now_s += 2 * HEARD_WITHIN_S
    after.watch()
    assert (machine.became, after.fault()) == ([digest], "")


def test_a_program_that_is_not_heard_goes_back_and_says_so(tmp_path: Path, serve: Serve) -> None:
    served, digest = serve(RUNS)
    machine = Machine(tmp_path, served.connection)
    machine.updates().change(digest)
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
    assert back.fault() == f"The program {digest} was not heard within 60 s, and was taken back."


@pytest.mark.parametrize(
    ("content", "asked", "said"),
    [(FAILS, "", "No module named 'nothing_that_is_here'"), (RUNS, "f" * 12, "the service serves ")],
)
def test_a_program_that_does_not_run_or_is_another_is_not_used(
    tmp_path: Path, serve: Serve, content: str, asked: str, said: str
) -> None:
    served, digest = serve(content)
    machine = Machine(tmp_path, served.connection)
    updates = machine.updates()
    for _ in range(2):  # the order is repeated, and the second is not tried
        updates.change(asked or digest)
    assert (machine.became, said in updates.fault(), (asked or digest) in updates.fault()) == ([], True, True)


def test_a_program_from_sources_is_not_changed(tmp_path: Path, serve: Serve) -> None:
    served, digest = serve(RUNS)
    machine = Machine(tmp_path, served.connection)
    machine.updates("").change(digest)
    assert machine.became == []
    assert Program.own().digest == ""


def test_the_folder_of_a_program_has_its_digest_for_a_name(tmp_path: Path) -> None:
    archive = an_archive(tmp_path / "one.pyz", RUNS)
    folder = unpack(archive, tmp_path / "prefix")
    assert (folder.name, (folder / RELEASE).read_text()) == (digest_of(archive), "9.9")
    shutil.rmtree(folder)
