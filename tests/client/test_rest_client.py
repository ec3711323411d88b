"""The Python client over real HTTP."""

import socket
from collections.abc import Iterator

import pytest
from contract_service import TOKEN, Answer, Service, answer, attempt_answer, problem

from motley_client import client as client_module
from motley_client.client import Client
from motley_client.errors import (
    AuthError,
    Conflict,
    InvalidRequest,
    MotleyError,
    NotFound,
    ServerError,
    Unreachable,
)


@pytest.fixture
def client(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr(client_module, "POLL_PERIOD_S", 0.01)
    monkeypatch.setattr(client_module, "NOTHING_NEW_S", 0.01)
    with Client(service.url, TOKEN) as client:
        yield client


def test_submit_sends_the_spec_and_answers_the_job(service: Service, client: Client) -> None:
    job = client.submit({"name": "resnet", "command": ["python", "train.py"]})
    assert service.requests[-1].body == {"name": "resnet", "command": ["python", "train.py"]}
    assert (job["name"], job["state"]) == ("resnet", "queued")


def test_every_submit_has_an_idempotency_key_of_its_own(service: Service, client: Client) -> None:
    for name in ("a", "b"):
        client.submit({"name": name})
    first, second = (request.headers["Idempotency-Key"] for request in service.requests)
    assert len({first, second, ""}) == 3


def test_a_caller_may_repeat_a_submit_with_the_same_key(service: Service, client: Client) -> None:
    client.submit({"name": "a"}, idempotency_key="again")
    assert service.requests[-1].headers["Idempotency-Key"] == "again"


def test_jobs_goes_through_all_pages(service: Service, client: Client) -> None:
    for _ in range(5):
        service.add()
    assert [job["name"] for job in client.jobs()] == ["job-5", "job-4", "job-3", "job-2", "job-1"]


def test_jobs_asks_for_no_page_that_nobody_reads(service: Service, client: Client) -> None:
    for _ in range(5):
        service.add()
    next(client.jobs())
    assert len(service.requests) == 1


def test_jobs_filters_by_state_and_prefix(service: Service, client: Client) -> None:
    for state in ("queued", "running", "failed"):
        service.add(state=state)
    assert [job["state"] for job in client.jobs(state=["queued", "running"], q="job-2")] == ["running"]


def test_an_id_cannot_lead_to_another_address(service: Service, client: Client) -> None:
    with pytest.raises(NotFound):
        client.job("../nodes?x=")
    assert service.requests[-1].path == "/api/v1/jobs/..%2Fnodes%3Fx%3D"


def test_cancel_answers_the_job_that_is_stopping(service: Service, client: Client) -> None:
    assert client.cancel(service.add()["id"])["state"] == "stopping"


def test_nodes_and_rounds_are_answered(service: Service, client: Client) -> None:
    service.nodes, service.rounds = [{"name": "n1"}], [{"number": 2}, {"number": 1}]
    assert [node["name"] for node in client.nodes()] == ["n1"]
    assert [round_["number"] for round_ in client.rounds()] == [2, 1]
    assert client.round(1)["number"] == 1


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
def test_each_status_is_its_exception(service: Service, client: Client, status: int, kind: type[MotleyError]) -> None:
    service.answers_first = [problem(status, "Because.", code="why", request_id="r-1")]
    with pytest.raises(kind, match=r"Because\.") as caught:
        client.job("x")
    assert (type(caught.value), caught.value.code, caught.value.request_id) == (kind, "why", "r-1")


def test_an_invalid_request_says_what_is_wrong_with_each_field(service: Service, client: Client) -> None:
    fault = {"pointer": "/gpus", "code": "min_value", "detail": "At least 1."}
    service.answers_first = [problem(422, "Invalid.", errors=[fault])]
    with pytest.raises(InvalidRequest) as caught:
        client.submit({"gpus": 0})
    assert [(error.pointer, error.detail) for error in caught.value.errors] == [("/gpus", "At least 1.")]


@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        (Answer(502, b"<h1>Bad gateway</h1>"), Unreachable, r"502 \(Bad Gateway\)"),
        (Answer(200, b"<h1>Welcome</h1>"), ServerError, "no Motley service"),
        (Answer(301, b"", {"Location": "https://elsewhere/"}), ServerError, "has moved to https://elsewhere/"),
        (answer(["not", "a", "problem"], 500), ServerError, "500"),
    ],
)
def test_what_is_no_motley_is_told_apart(
    service: Service, client: Client, wrong: Answer, kind: type[MotleyError], words: str
) -> None:
    service.answers_first = [wrong]
    with pytest.raises(kind, match=words):
        client.job("x")


def test_nobody_at_the_address_is_unreachable() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound but not listening: every connection is refused
        with Client(f"http://127.0.0.1:{nobody.getsockname()[1]}", TOKEN) as client, pytest.raises(Unreachable):
            client.job("x")


def test_a_token_pasted_with_other_characters_is_refused_here() -> None:
    with pytest.raises(AuthError, match="copy it again"):
        Client("http://motley.example", "mt_secret\n")


def test_logs_answers_bytes_from_an_offset(service: Service, client: Client) -> None:
    job = service.add(attempts=[attempt_answer(1)])
    service.logs[1] = b"0123456789"
    chunk = client.logs(job["id"], offset=4)
    assert (chunk.data, chunk.next_offset, chunk.complete) == (b"456789", 10, False)


def test_read_logs_reads_to_the_end_of_a_long_log(service: Service, client: Client) -> None:
    job = service.add(attempts=[attempt_answer(1)])
    service.logs[1] = b"line\n" * 1000
    assert b"".join(client.read_logs(job["id"])) == service.logs[1]


def test_follow_logs_goes_on_through_a_preemption_until_the_job_has_finished(service: Service, client: Client) -> None:
    job = service.add(attempts=[attempt_answer(1)])
    service.logs[1] = b"first "

    def script() -> Iterator[None]:
        yield
        service.logs[1] += b"stopped "
        job["attempts"][0]["state"], job["state"] = "ended", "queued"
        yield
        yield
        job["attempts"].append(attempt_answer(2, state="ended"))
        job["state"], service.logs[2] = "succeeded", b"second"

    logs = client.follow_logs(job["id"])
    received, story = [next(logs)], script()
    service.on_request = lambda: next(story, None)
    received += list(logs)
    assert b"".join(received) == b"first stopped second"


def test_follow_logs_waits_for_a_job_to_start(service: Service, client: Client) -> None:
    job = service.add(state="queued")

    def start() -> None:
        if len(service.requests) == 3:
            service.logs[1] = b"hello"
            job.update(state="succeeded", attempts=[attempt_answer(1, state="ended")])

    service.on_request = start
    assert list(client.follow_logs(job["id"])) == [b"hello"]


def test_wait_answers_the_finished_job(service: Service, client: Client) -> None:
    job = service.add()
    service.on_request = lambda: job.update(state="failed") if len(service.requests) == 3 else None
    assert (client.wait(job["id"])["state"], len(service.requests)) == ("failed", 3)


def test_wait_outlives_a_restart_of_the_service(service: Service, client: Client) -> None:
    job = service.add(state="succeeded")
    service.answers_first = [Answer(502, b""), problem(503, "Starting.")]
    assert client.wait(job["id"])["state"] == "succeeded"


def test_wait_gives_up_when_its_patience_ends(service: Service) -> None:
    service.answers_first = [problem(503, "Starting.")]
    with Client(service.url, TOKEN, patience_s=0) as client, pytest.raises(Unreachable):
        client.wait(service.add(state="succeeded")["id"])
