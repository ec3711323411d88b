"""Sessions in a running rank: commands with and without a terminal, and connections to a port, as the job sees them."""

import json
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from engines.protocol import EngineError, StopReason
from engines.sessions.frames import Frames, Kind
from engines.supervision.isolation import PREFIXES, best_isolation
from engines.supervision.rank import PACKAGE_PARENT
from tests.engines.engine_lab import Lab, python, until
from tests.engines.test_engine_setup import GRACE

LONG_S = f"3600.{secrets.randbelow(10**9)}"
"""A time that no other test sleeps for: without a PID namespace a session sees the processes of the machine."""
UP = "echo up; sleep 3600"
TERMINAL = {"rows": 24, "columns": 80, "term": "dumb"}


class Session:
    """A session's process, and what it has said so far."""

    def __init__(self, process: "subprocess.Popen[bytes]", request: Mapping[str, Any]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.frames = Frames(process.stdout, process.stdin)  # type: ignore[arg-type]
        self.frames.send(Kind.REQUEST, json.dumps(request).encode())

    def until(self, kind: Kind, connection: int = 0) -> bytes:
        """Data of the next frame of this kind."""
        while (frame := self.frames.receive()) is not None:
            if (frame.kind, frame.connection) == (kind, connection):
                return frame.data
        raise AssertionError("the session has ended")

    def all(self) -> tuple[bytes, bytes, int]:
        """Output, error output and exit code, at the end."""
        said = {Kind.DATA: b"", Kind.ERROR: b"", Kind.EXIT: b""}
        while (frame := self.frames.receive()) is not None:
            said[frame.kind] += frame.data
        return said[Kind.DATA], said[Kind.ERROR], int(said[Kind.EXIT])


@contextmanager
def session(lab: Lab, attempt: int, request: Mapping[str, Any], *, rank: int = 0) -> Iterator[Session]:
    command = lab.engine.session(attempt, rank)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command.argv, cwd=command.folder, env=dict(command.env), **pipes) as process:
        yield Session(process, request)
        process.kill()
        with suppress(BrokenPipeError):  # of what it had not read
            process.stdin.close()


def running(lab: Lab, command: Any = UP, **changes: Any) -> int:
    attempt = lab.launch(command, **changes)
    for rank in range(changes.get("ranks", 1)):
        lab.wait_for_output(attempt, b"up", rank=rank)
    return attempt


def end(lab: Lab, attempt: int) -> None:
    lab.engine.stop(attempt, reason=StopReason.CANCEL, grace=GRACE)
    lab.end_of(attempt)


def run(lab: Lab, attempt: int, *argv: str, rank: int = 0) -> tuple[bytes, bytes, int]:
    with session(lab, attempt, {"argv": list(argv), "terminal": None}, rank=rank) as one:
        one.frames.send(Kind.END)
        return one.all()


@pytest.mark.every_isolation
@pytest.mark.on_slurm
def test_a_command_runs_beside_the_job_with_its_environment_and_folder(lab: Lab) -> None:
    attempt = running(lab, "touch here; echo up; sleep 3600", env={"A": "b c"})
    assert run(lab, attempt, "sh", "-c", "ls; echo $A; echo to stderr >&2; exit 3") == (
        b"here\nb c\n",
        b"to stderr\n",
        3,
    )
    end(lab, attempt)


@pytest.mark.on_slurm
def test_each_rank_has_sessions_of_its_own(lab: Lab) -> None:
    attempt = running(lab, ranks=2)
    for rank in range(2):
        assert run(lab, attempt, "printenv", "RANK_HERE", rank=rank)[0] == f"{rank}\n".encode()
    end(lab, attempt)


def test_input_reaches_the_command_up_to_its_end(lab: Lab) -> None:
    attempt = running(lab)
    with session(lab, attempt, {"argv": ["sh", "-c", "wc -c"], "terminal": None}) as one:
        for _ in range(10):
            one.frames.send(Kind.DATA, b"x" * 100_000)
        one.frames.send(Kind.END)
        assert one.all() == (b"1000000\n", b"", 0)
    end(lab, attempt)


@pytest.mark.on_slurm
def test_a_shell_has_a_terminal_of_the_clients_size(lab: Lab) -> None:
    attempt = running(lab)
    with session(lab, attempt, {"argv": None, "terminal": TERMINAL}) as one:
        one.frames.send(Kind.RESIZE, json.dumps({"rows": 50, "columns": 132}).encode())
        one.frames.send(Kind.DATA, b"stty size; exit 4\n")
        output, _, code = one.all()
    assert b"50 132" in output
    assert code == 4
    end(lab, attempt)


FROM_ELSEWHERE = """
import os, sys
from pathlib import Path
from engines.local.engine import LocalEngine
command = LocalEngine(Path(sys.argv[1])).session(int(sys.argv[2]), int(sys.argv[3]))
os.chdir(command.folder)
os.execve(command.argv[0], command.argv, dict(command.env))
"""


@contextmanager
def session_from_elsewhere(lab: Lab, attempt: int, request: Mapping[str, Any], *, rank: int = 0) -> Iterator[Session]:
    """As of a web server in another container, which shares the engine's folder and sees no process of the job."""
    program = [sys.executable, "-c", FROM_ELSEWHERE, str(lab.root), str(attempt), str(rank)]
    argv, streams = [*PREFIXES[best_isolation()], *program], {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(argv, cwd=PACKAGE_PARENT, stderr=subprocess.PIPE, **streams) as process:
        yield Session(process, request)
        process.kill()
        with suppress(BrokenPipeError):  # of what it had not read
            process.stdin.close()


@pytest.mark.local_only
@pytest.mark.parametrize("rank", [0, 1])
def test_from_another_container_a_session_runs_where_the_job_does(lab: Lab, rank: int) -> None:
    attempt = running(lab, ranks=2)
    here = run(lab, attempt, "sh", "-c", "readlink /proc/self/ns/pid; id -u; echo $RANK_HERE", rank=rank)
    request = {"argv": ["sh", "-c", "cat >&2; readlink /proc/self/ns/pid; id -u; echo $RANK_HERE; exit 3"]}
    with session_from_elsewhere(lab, attempt, {**request, "terminal": None}, rank=rank) as one:
        one.frames.send(Kind.DATA, b"x" * 300_000)
        one.frames.send(Kind.END)
        assert one.all() == (here[0], b"x" * 300_000, 3)
    end(lab, attempt)


@pytest.mark.local_only
def test_what_a_session_from_another_container_runs_ends_when_its_client_has_gone(lab: Lab) -> None:
    attempt = running(lab)
    request = {"argv": ["sh", "-c", f"echo up; sleep {LONG_S}"], "terminal": None}
    with session_from_elsewhere(lab, attempt, request) as one:
        one.until(Kind.DATA)
        one.frames.send(Kind.DATA, b"x" * 100_000)  # more than a pipe holds
        one.process.kill()
        one.process.wait()
    until(lambda: run(lab, attempt, "pgrep", "-f", f"sleep {LONG_S}")[2] == 1)
    end(lab, attempt)


@pytest.mark.local_only
def test_a_session_from_another_container_ends_with_the_attempt(lab: Lab) -> None:
    attempt = running(lab)
    with session_from_elsewhere(lab, attempt, {"argv": ["sh", "-c", "echo up; sleep 3600"], "terminal": None}) as one:
        assert one.until(Kind.DATA) == b"up\n"
        end(lab, attempt)
        assert one.process.wait() is not None
    until(lambda: not lab.left_over())
    assert lab.report(attempt).proven_gone
    assert not lab.folder(attempt).session_socket.exists()


@pytest.mark.local_only
def test_no_other_account_opens_the_door_of_an_attempt(lab: Lab) -> None:
    """A job of another account, say, would enter the jobs of others as the service does."""
    attempt = running(lab)
    assert lab.folder(attempt).session_socket.stat().st_mode & 0o777 == 0o600
    end(lab, attempt)


@pytest.mark.local_only
def test_an_attempt_without_a_door_refuses_sessions_from_another_container_with_the_reason(lab: Lab) -> None:
    attempt = running(lab)
    lab.folder(attempt).session_socket.unlink()
    with session_from_elsewhere(lab, attempt, {"argv": ["true"], "terminal": None}) as one:
        assert b"EngineError: The job runs where this web server sees no processes" in one.process.communicate()[1]
    end(lab, attempt)


def test_a_session_sees_only_the_processes_of_the_job_and_ends_with_it(lab: Lab) -> None:
    attempt = running(lab)
    with session(lab, attempt, {"argv": ["sh", "-c", "echo up; exec sleep 3599"], "terminal": None}) as one:
        assert one.until(Kind.DATA) == b"up\n"
        end(lab, attempt)
        assert one.process.wait() is not None
    until(lambda: not lab.left_over())
    assert lab.report(attempt).proven_gone


def test_what_a_session_runs_ends_when_its_client_has_gone(lab: Lab) -> None:
    attempt = running(lab)
    with session(lab, attempt, {"argv": ["sh", "-c", f"echo up; sleep {LONG_S}"], "terminal": None}) as one:
        one.until(Kind.DATA)
        assert one.process.stdin is not None
        one.process.stdin.close()
        one.process.wait()
    assert run(lab, attempt, "pgrep", "-f", f"sleep {LONG_S}")[2] == 1
    end(lab, attempt)


def test_a_session_has_no_more_rights_than_the_job(lab: Lab) -> None:
    attempt = running(lab, "id -u; echo up; sleep 3600")
    assert run(lab, attempt, "id", "-u")[0] == lab.output(attempt).splitlines(keepends=True)[0]
    end(lab, attempt)


@pytest.mark.local_only
def test_a_job_cannot_lead_a_session_into_namespaces_of_its_own(lab: Lab) -> None:
    """With a mount and an idea of root that the job has chosen, the session would run the job's programs as us."""
    evil = f"printf '#!/bin/sh\\necho evil\\n' > evil; chmod +x evil; mount --bind evil /usr/bin/env; {UP}"
    attempt = running(lab, f'unshare --user --map-root-user --mount sh -c "{evil}" || {UP}')
    uid = lab.output(lab.run("id -u"))
    assert run(lab, attempt, "/usr/bin/env", "id", "-u")[0] == uid
    end(lab, attempt)


@pytest.mark.local_only
def test_a_session_that_stops_its_parent_keeps_no_gpu(lab: Lab) -> None:
    attempt = running(lab)
    with session(
        lab, attempt, {"argv": ["sh", "-c", "echo up; read go; kill -STOP $PPID; sleep 3600"], "terminal": None}
    ) as one:
        one.until(Kind.DATA)
        one.frames.send(Kind.DATA, b"go\n")
        end(lab, attempt)
        assert lab.report(attempt).proven_gone


def test_a_client_that_goes_while_its_input_is_not_read_leaves_nothing(lab: Lab) -> None:
    attempt = running(lab)
    with session(lab, attempt, {"argv": ["sh", "-c", f"echo up; sleep {LONG_S}"], "terminal": None}) as one:
        one.until(Kind.DATA)
        one.frames.send(Kind.DATA, b"x" * 100_000)  # more than a pipe holds
        assert one.process.stdin is not None
        one.process.stdin.close()
        one.process.wait()
    assert run(lab, attempt, "pgrep", "-f", f"sleep {LONG_S}")[2] == 1
    end(lab, attempt)


def test_a_size_that_is_none_does_no_harm(lab: Lab) -> None:
    attempt = running(lab)
    with session(lab, attempt, {"argv": None, "terminal": TERMINAL}) as one:
        one.frames.send(Kind.RESIZE, b"{}")
        one.frames.send(Kind.DATA, b"exit 4\n")
        assert one.all()[2] == 4
    end(lab, attempt)


def test_a_command_that_is_not_there_says_so(lab: Lab) -> None:
    attempt = running(lab)
    _, errors, code = run(lab, attempt, "no-such-program")
    assert (b"no-such-program: No such file" in errors, code) == (True, 127)
    end(lab, attempt)


def test_a_rank_that_has_ended_has_no_session(lab: Lab) -> None:
    attempt = lab.run("true")
    with pytest.raises(EngineError, match="it has ended"):
        lab.engine.session(attempt, 0)


@pytest.mark.local_only
def test_a_rank_that_ends_before_the_session_has_entered_it_has_none(lab: Lab) -> None:
    attempt = running(lab)
    command = lab.engine.session(attempt, 0)
    end(lab, attempt)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command.argv, cwd=command.folder, env=dict(command.env), **pipes) as process:
        _, errors, code = Session(process, {"argv": ["true"], "terminal": None}).all()
    assert (b"No process of the job runs there" in errors, code) == (True, 255)


SERVER = """
import socket
server = socket.create_server(("127.0.0.1", 0))
print("port", server.getsockname()[1], "up", flush=True)
while True:
    connection, _ = server.accept()
    data = connection.recv(100)
    connection.sendall(data.upper())
    connection.close()
"""


@pytest.mark.on_slurm
def test_connections_to_a_port_of_the_job_are_served_side_by_side(lab: Lab) -> None:
    attempt = running(lab, python(SERVER))
    found = re.search(rb"port (\d+)", lab.output(attempt))
    assert found is not None
    with session(lab, attempt, {"port": int(found[1])}) as one:
        for number in (1, 2):
            one.frames.send(Kind.OPEN, connection=number)
        one.frames.send(Kind.DATA, b"hello", connection=1)
        assert one.until(Kind.DATA, connection=1) == b"HELLO"
        one.frames.send(Kind.DATA, b"again", connection=2)
        assert one.until(Kind.DATA, connection=2) == b"AGAIN"
        assert one.until(Kind.END, connection=2) == b""
    end(lab, attempt)


@pytest.mark.local_only
@pytest.mark.parametrize(
    "listener", [b"", b"{}", b"null", b"x", b'{"network": "", "port": %d}', b'{"network": "n", "port": %d}']
)
def test_the_same_port_of_another_machine_and_an_older_client_are_connected(lab: Lab, listener: bytes) -> None:
    attempt = running(lab, python(SERVER))
    found = re.search(rb"port (\d+)", lab.output(attempt))
    assert found is not None
    with session(lab, attempt, {"port": int(found[1])}) as one:
        one.frames.send(Kind.OPEN, listener.replace(b"%d", found[1]), connection=1)
        one.frames.send(Kind.DATA, b"hello", connection=1)
        assert one.until(Kind.DATA, connection=1) == b"HELLO"
    end(lab, attempt)


def test_a_port_where_nothing_listens_is_named(lab: Lab) -> None:
    attempt = running(lab)
    with session(lab, attempt, {"port": 1}) as one:
        one.frames.send(Kind.OPEN, connection=7)
        assert b"nothing answers on port 1" in one.until(Kind.ERROR, connection=7)
    end(lab, attempt)
