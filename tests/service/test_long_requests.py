"""Streams of logs and sessions keep no thread of the web, end with the right to them, and are limited."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from motley_client import Client
from motley_client.errors import Conflict, Unreachable
from tests.deployment import kill_all, wait_for
from tests.service.running_service import SESSIONS, STREAMS, Service
from tests.service.test_command_with_jobs import submitted

EVENTS = "text/event-stream"
ANSWER_S = 10
WRITER = "echo up; for n in $(seq 3600); do sleep 1; echo line $n; done"


@pytest.fixture(scope="module")
def service(shared_service: Service) -> Service:
    return shared_service


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[Client]:
    with Client(service.url, service.token) as client:
        yield client


@pytest.fixture(scope="module")
def job(service: Service, client: Client) -> Iterator[str]:
    job = submitted(service, "writer", WRITER)
    wait_for("the job writes", lambda: client.logs(job).data)
    yield job
    with suppress(Conflict):
        client.cancel(job)


@contextmanager
def stream(service: Service, job: str, token: str | None = None, *, last: int = 0) -> Iterator[httpx.Response]:
    headers = {"Accept": EVENTS, "Authorization": f"Bearer {token or service.token}"}
    if last:
        headers["Last-Event-ID"] = str(last)
    address = f"{service.url}/api/v1/jobs/{job}/logs"
    with httpx.Client(timeout=120) as http, http.stream("GET", address, headers=headers) as answer:
        yield answer


class Reader:
    """Reads a stream in parts: httpx closes one whose iterator is dropped."""

    def __init__(self, answer: httpx.Response) -> None:
        self._texts = answer.iter_text()

    def until(self, words: str) -> str:
        """What arrives until these words do."""
        said = ""
        for text in self._texts:
            said += text
            if words in said:
                break
        return said


def test_lines_arrive_as_they_are_written_with_the_headers_of_any_answer(service: Service, job: str) -> None:
    with stream(service, job) as answer:
        assert answer.headers["content-type"] == EVENTS
        assert answer.headers["content-security-policy"].startswith("sandbox")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-request-id"]
        said = Reader(answer).until("data: line 3\n")
    assert "event: log" in said
    with stream(service, job, last=3) as answer:
        assert "data: up" not in Reader(answer).until("data: line 1\n")


def test_pages_and_probes_answer_beside_more_of_them_than_there_are_threads(
    service: Service, client: Client, job: str
) -> None:
    with ExitStack() as stack:
        streams = [Reader(stack.enter_context(stream(service, job))) for _ in range(STREAMS)]
        for each in streams:
            assert "data: up" in each.until("data: up")
        for _ in range(SESSIONS):
            stack.enter_context(client.open_session(job, {"argv": ["sleep", "3595"]}))
        for path in ("/livez", "/readyz", "/login/", "/api/v1/gpu-types"):
            headers = {"Authorization": f"Bearer {service.token}"} if path.startswith("/api") else {}
            assert httpx.get(service.url + path, headers=headers, timeout=ANSWER_S).status_code == 200
        with stream(service, job) as refused:
            refused.read()
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "15")
            assert refused.json()["code"] == "too_many_long_requests"
        with pytest.raises(Unreachable, match=f"You have {SESSIONS} open sessions, the limit"):
            stack.enter_context(client.open_session(job, {"argv": ["true"]}))
    wait_for("their places are free again", lambda: _opens(service, job))


def _opens(service: Service, job: str) -> bool:
    with stream(service, job) as answer:
        return answer.status_code == 200


def test_a_stream_ends_when_its_token_is_revoked(service: Service, client: Client, job: str) -> None:
    token = client.create_token("for a while", scope="read")
    with stream(service, job, token["token"]) as answer:
        reader = Reader(answer)
        reader.until("data: up")
        client.revoke_token(token["id"])
        began = time.monotonic()
        reader.until("these words never come")
    assert time.monotonic() - began < 100


def test_a_stream_needs_the_right_to_the_job(service: Service, job: str) -> None:
    with stream(service, job, "mot_" + "x" * 40) as answer:
        assert answer.status_code == 401


def test_the_end_of_the_job_ends_the_stream(service: Service, client: Client) -> None:
    job = submitted(service, "short", "echo done")
    with stream(service, job) as answer:
        assert "event: eof" in Reader(answer).until("event: eof")


def test_a_server_of_long_requests_that_is_killed_leaves_nothing_behind(
    service: Service, client: Client, job: str
) -> None:
    with client.open_session(job, {"argv": ["sleep", "3594"]}) as session:
        wait_for("the command runs", lambda: _sleeps(service, "3594"))
        kill_all(service.processes("motley-long"))
        assert session.receive() is None
    wait_for("the command ends", lambda: not _sleeps(service, "3594"))
    assert client.job(job)["state"] == "running"
    wait_for("streams are there again", lambda: _opens(service, job))


def _sleeps(service: Service, seconds: str) -> bool:
    words = [Path(f"/proc/{pid}/cmdline") for pid in service.job_processes()]
    found = []
    for path in words:
        with suppress(OSError):
            found.append(path.read_bytes())
    return f"sleep\0{seconds}\0".encode() in found
