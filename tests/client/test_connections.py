"""What the Python client makes of broken connections, refusals, and servers that are no Motley."""

import socket
from collections.abc import Iterator
from functools import partial
from time import monotonic, sleep

import httpx
import pytest

from motley_client import Client
from motley_client.errors import AuthError, Conflict, InvalidRequest, MotleyError, NotFound, ServerError, Unreachable
from tests.client.scripted_server import CUT, TOKEN, Answer, Script, answer, problem

JOB = {"id": "1", "name": "a", "state": "queued"}
DONE = {**JOB, "state": "succeeded"}


@pytest.fixture
def talker(script: Script) -> Iterator[Client]:
    with Client(script.url, TOKEN, poll_s=0.01) as client:
        yield client


def test_a_client_reads_the_authorities_of_tls_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no transport for asyncio, which it never uses."""
    monkeypatch.delattr(httpx, "AsyncHTTPTransport")
    with Client("https://localhost", TOKEN) as client:
        assert isinstance(client, Client)


@pytest.mark.parametrize("trouble", [CUT, problem(429, "Slower.", retry_after=0), problem(503, "Starting."),
                                     problem(409, "Under way.", code="in_progress", retry_after=0)])  # fmt: skip
def test_a_submit_is_repeated_with_the_same_key(script: Script, talker: Client, trouble: Answer) -> None:
    script.answers = [trouble, answer(JOB, 201)]
    assert talker.submit({"name": "a"})["id"] == "1"
    first, second = (request.headers["Idempotency-Key"] for request in script.requests)
    assert first == second


def test_a_clone_waits_for_the_copy_of_its_checkpoint_and_is_made_once(script: Script) -> None:
    script.answers, script.on_request = [CUT, answer(JOB, 201)], partial(sleep, 0.1)
    with Client(script.url, TOKEN, timeout_s=0.05) as client:
        assert client.clone("1", checkpoint="last.pt")["id"] == "1"
    first, second = (request.headers["Idempotency-Key"] for request in script.requests)
    assert first == second


def test_a_number_that_json_lacks_is_refused_with_what_to_write(talker: Client) -> None:
    with pytest.raises(InvalidRequest, match="write a finite number") as caught:
        talker.submit({"name": "a", "weight": float("nan")})
    assert [fault.pointer for fault in caught.value.errors] == ["/weight"]


def test_every_submit_has_an_idempotency_key_of_its_own(script: Script, talker: Client) -> None:
    script.answers = [answer(JOB, 201)]
    talker.submit({"name": "a"})
    talker.submit({"name": "a"}, idempotency_key="mine")
    first, second = (request.headers["Idempotency-Key"] for request in script.requests)
    assert (len(first) > 20, second) == (True, "mine")


def test_a_verb_that_may_have_been_done_is_not_repeated(script: Script, talker: Client) -> None:
    script.answers = [CUT, answer(JOB, 202)]
    with pytest.raises(Unreachable):
        talker.requeue("1")
    assert len(script.requests) == 1


def test_a_verb_that_was_turned_away_is_repeated_when_the_service_says(script: Script, talker: Client) -> None:
    script.answers = [problem(429, "Slower.", retry_after=0), answer(JOB, 202)]
    assert talker.requeue("1")["state"] == "queued"


def test_looking_is_repeated_until_patience_ends(script: Script, talker: Client) -> None:
    script.answers = [CUT]
    with pytest.raises(Unreachable):
        talker.job("1")
    assert len(script.requests) == 4


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidRequest),
        (401, AuthError),
        (403, AuthError),
        (404, NotFound),
        (409, Conflict),
        (412, Conflict),
        (422, InvalidRequest),
        (429, Unreachable),
        (500, ServerError),
        (503, Unreachable),
    ],
)
def test_each_status_is_its_exception(script: Script, talker: Client, status: int, kind: type[MotleyError]) -> None:
    script.answers = [problem(status, "Because.", code="why", request_id="r-1")]
    with pytest.raises(kind, match=r"Because\.") as caught:
        talker.job("x")
    assert (type(caught.value), caught.value.code, caught.value.request_id) == (kind, "why", "r-1")


@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        (Answer(502, b"<h1>Bad gateway</h1>"), Unreachable, r"502 \(Bad Gateway\)"),
        (Answer(200, b"<h1>Welcome</h1>"), ServerError, "not a Motley service"),
        (Answer(301, b"", {"Location": "https://elsewhere/"}), ServerError, "has moved to https://elsewhere/"),
        (answer(["not", "a", "problem"], 500), ServerError, "500"),
    ],
)
def test_what_is_no_motley_is_told_apart(
    script: Script, talker: Client, wrong: Answer, kind: type[MotleyError], words: str
) -> None:
    script.answers = [wrong]
    with pytest.raises(kind, match=words):
        talker.job("x")


def test_an_address_without_a_server_is_unreachable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound but not listening: every connection is refused
        with Client(f"http://127.0.0.1:{unused.getsockname()[1]}", TOKEN) as client, pytest.raises(Unreachable):
            client.job("x")


def test_a_token_pasted_with_other_characters_is_refused_here() -> None:
    with pytest.raises(AuthError, match="copy it again"):
        Client("http://motley.example", "mt_secret\n")


def test_wait_outlives_a_restart_of_the_service(script: Script, talker: Client) -> None:
    script.answers = [*[Answer(502, b"")] * 6, problem(503, "Starting."), answer(JOB), answer(DONE)]
    assert talker.wait("1")["state"] == "succeeded"


def test_wait_gives_up_when_its_patience_ends(script: Script) -> None:
    script.answers = [problem(503, "Starting.")]
    with Client(script.url, TOKEN, patience_s=0, retries=0) as client, pytest.raises(Unreachable):
        client.wait("1")


def test_a_service_that_does_not_say_where_a_log_ends_is_older(script: Script, talker: Client) -> None:
    script.answers = [answer({"attempt": 1, "lines": [], "unfinished": [], "next": "0:0:0:0", "complete": False})]
    with pytest.raises(ServerError, match="older than this command"):
        list(talker.log_lines("1"))


COMPLETE = {"Motley-Next-Offset": "9", "Motley-Log-Complete": "true"}


def test_following_a_log_outlives_a_preemption(script: Script, talker: Client) -> None:
    def job(state: str, *attempts: int) -> Answer:
        return answer({**JOB, "state": state, "attempts": [{"number": number} for number in attempts]})

    def log(data: bytes, *, complete: bool) -> Answer:
        return Answer(200, data, {"Motley-Next-Offset": "9", "Motley-Log-Complete": str(complete).lower()})

    script.answers = [
        job("queued"),
        job("running", 1),
        log(b"first ", complete=False),
        log(b"stopped ", complete=True),
        job("queued", 1),
        job("running", 1, 2),
        CUT,
        log(b"second", complete=True),
        job("succeeded", 1, 2),
    ]
    waited: list[str] = []
    received = list(talker.follow_logs("1", on_wait=lambda job: waited.append(job["state"])))
    assert (received, waited) == ([b"first ", b"stopped ", b"second"], ["queued", "queued"])


def test_a_follower_comes_again_when_the_service_says(script: Script, talker: Client) -> None:
    def log(data: bytes, **headers: str) -> Answer:
        return Answer(200, data, {"Motley-Next-Offset": "9", "Motley-Log-Complete": "false"} | headers)

    script.answers = [log(b"first ", **{"Retry-After": "1"}), Answer(200, b"last", COMPLETE)]
    began = monotonic()
    assert list(talker.follow_logs("1", attempt=1)) == [b"first ", b"last"]
    assert monotonic() - began >= 1
