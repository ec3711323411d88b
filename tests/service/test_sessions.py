"""`motley exec` and `motley port`: through the service into a running job, as its owner has them."""

import os
import pty
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress

import httpx
import pytest

from motley_client import Client
from motley_client.errors import AuthError, Conflict, Unreachable
from motley_client.web_ports import free_port
from tests.deployment import PATIENCE_S, wait_for
from tests.service.running_service import SESSIONS, Service
from tests.service.test_command_with_jobs import motley, started, submitted

SERVE = "echo here > index.html; exec python3 -u -m http.server --bind 127.0.0.1 0"


@pytest.fixture
def service(four_gpus: Service) -> Service:
    return four_gpus


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with Client(service.url, service.token) as client:
        yield client


@contextmanager
def running(service: Service, client: Client, command: str = "echo up; sleep 3600", *options: str) -> Iterator[str]:
    job = submitted(service, "long", command, *options)
    wait_for("the job runs", lambda: client.job(job)["state"] == "running" and client.logs(job).data)
    yield job
    with suppress(Conflict):  # it may have ended
        client.cancel(job)


def test_a_command_runs_in_the_job_and_its_exit_code_is_ours(service: Service, client: Client) -> None:
    with running(service, client) as job:
        code, out, errors = motley(service, "exec", job, "--", "sh", "-c", "echo $MOTLEY_JOB_ID; echo no >&2; exit 7")
        assert (code, out, errors) == (7, f"{job}\n", "no\n")
        with closing(service.browser()) as browser:
            assert "opened a session in a job" in browser.get("/audit").text


def test_a_shell_in_a_terminal(service: Service, client: Client) -> None:
    with running(service, client) as job:
        child, terminal = pty.fork()
        if child == 0:
            env = {"MOTLEY_URL": service.url, "MOTLEY_TOKEN": service.token, "HOME": "/nonexistent", "TERM": "dumb"}
            with suppress(OSError):
                os.execvpe("motley", ["motley", "exec", job], {"PATH": os.environ["PATH"], **env})
            os._exit(127)  # or a second process of tests would go on here
        os.write(terminal, b"echo job-$MOTLEY_JOB_NAME; tty; exit 5\n")
        said = b""
        with suppress(OSError):
            while data := os.read(terminal, 4096):
                said += data
        os.close(terminal)
        assert b"job-long" in said
        assert b"/dev/pts/" in said
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5


def test_a_port_of_the_job_is_reached_through_the_service(service: Service, client: Client) -> None:
    with running(service, client, SERVE) as job:
        found = re.search(rb"port (\d+)", client.logs(job).data)
        assert found is not None
        with started(service, "port", job, f":{found[1].decode()}") as tunnel:
            assert tunnel.stdout is not None
            address = tunnel.stdout.readline().split()[0]
            with httpx.Client() as browser:
                for _ in range(3):
                    assert browser.get(address).text == "here\n"
            tunnel.send_signal(signal.SIGINT)
            tunnel.communicate()
            assert tunnel.returncode == 0


def test_a_page_of_the_job_is_opened(service: Service, client: Client) -> None:
    """By `motley open` at the port of its tag, and TensorBoard beside the job."""
    port = free_port()
    make = "mkdir runs lab; echo curves > runs/index.html; echo cells > lab/index.html; echo up"
    program = '#!/bin/sh\ncd "$2"; exec python3 -m http.server --bind 127.0.0.1 "$6"'
    board = f"echo '{program}' > tensorboard; chmod +x tensorboard"
    options = ["--tag", f"open={port}/lab/", "--env", f"PATH=.:{os.environ['PATH']}", "--env", "JUPYTER_TOKEN=t"]
    with running(service, client, f"{board}; {make}; {SERVE[:-1]}{port}", *options) as job:
        for words, expected in ((("open", job), "cells\n"), (("tensorboard", job, "runs"), "curves\n")):
            with started(service, *words, "--no-browser") as tunnel:
                assert tunnel.stdout is not None
                line = next(line for line in tunnel.stdout if "leads to the job" in line)
                assert httpx.get(line.split()[0]).text == expected
                assert line.split()[0].endswith("/lab/?token=t") is (words[0] == "open")
                tunnel.send_signal(signal.SIGINT)
                tunnel.communicate()
                assert tunnel.returncode == 0


def test_a_port_that_is_the_commands_own_is_refused_through_the_service(service: Service, client: Client) -> None:
    with running(service, client) as job:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            number = taken.getsockname()[1]
        with started(service, "port", job, str(number)) as tunnel:
            assert tunnel.stdout is not None
            address = tunnel.stdout.readline().split()[0]
            with pytest.raises(httpx.TransportError):
                httpx.get(address)
            tunnel.send_signal(signal.SIGINT)
            _, errors = tunnel.communicate()
        assert f"port {number} of the job's node is this command's own" in errors


def test_a_session_ends_with_its_job(service: Service, client: Client) -> None:
    with (
        running(service, client) as job,
        started(service, "exec", job, "--", "sh", "-c", "echo up; sleep 3600") as session,
    ):
        assert session.stdout is not None
        assert session.stdout.readline() == "up\n"
        client.cancel(job)
        session.communicate(timeout=PATIENCE_S)
        assert session.returncode != 0
    wait_for("nothing of it is left", lambda: not service.job_processes())


def test_a_client_that_is_killed_leaves_nothing_behind(service: Service, client: Client) -> None:
    with (
        running(service, client) as job,
        started(service, "exec", job, "--", "sh", "-c", "echo up; sleep 3597") as session,
    ):
        assert session.stdout is not None
        assert session.stdout.readline() == "up\n"
        session.kill()
        session.communicate()
        wait_for("the command ends", lambda: not _lives("sleep 3597"))
        assert client.job(job)["state"] == "running"


def _lives(command: str) -> bool:
    return subprocess.run(["pgrep", "-f", f"^{command}"], check=False, capture_output=True).returncode == 0


def test_who_may_not_change_jobs_has_no_session(service: Service, client: Client) -> None:
    with running(service, client) as job:
        token = client.create_token("reader", scope="read")["token"]
        with Client(service.url, token) as reader, pytest.raises(AuthError, match="scope"):
            opened(reader, job)


def test_a_job_that_does_not_run_says_so(service: Service, client: Client) -> None:
    job = submitted(service, "short", "true")
    client.wait(job)
    with pytest.raises(Conflict, match="its sessions with it"):
        opened(client, job)


def opened(client: Client, job: str) -> None:
    with client.open_session(job, {"argv": ["true"]}):
        pass


def test_a_request_that_is_not_valid_is_refused_with_the_field(service: Service, client: Client) -> None:
    with running(service, client) as job, client.open_session(job, {"port": 70_000}) as session:
        assert session.receive() is None
        assert "/port" in session.why_closed()


def test_more_sessions_than_a_user_may_have_are_refused_and_others_answered(service: Service, client: Client) -> None:
    with running(service, client) as job, ExitStack() as sessions:
        with pytest.raises(Unreachable, match=f"You have {SESSIONS} open sessions, the limit"):
            open_many(client, job, sessions)
        assert client.job(job)["state"] == "running"


def open_many(client: Client, job: str, sessions: ExitStack) -> None:
    for _ in range(SESSIONS + 1):
        sessions.enter_context(client.open_session(job, {"argv": ["sleep", "3596"]}))
