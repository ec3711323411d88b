"""Logs over REST: the last lines, ranges of bytes, and events that end when the attempt has."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from django.core.signals import request_finished
from django.db import close_old_connections
from rest_framework.test import APIClient

from connections_app.logs import slots
from connections_app.logs import stream as following
from connections_app.logs.slots import PollRate, stream_slots
from jobs_app.models import Job
from jobs_app.tokens import issue_token
from tests.rest_callers import Scope, with_token
from tests.service_lab import UNTIL_LET_GO, Lab
from web.api import logs

TEN = "".join(f"line {n}\n" for n in range(10)).encode()


def route(job: Job, query: str = "") -> str:
    return f"/api/v1/jobs/{job.pk}/logs{query}"


def body(answer) -> bytes:
    return b"".join(answer) if answer.streaming else answer.content


@pytest.fixture
def finished(cluster: Lab) -> Job:
    """It printed ten lines."""
    job = cluster.submit("for n in 0 1 2 3 4 5 6 7 8 9; do echo line $n; done")
    return cluster.until_state(job, Job.State.SUCCEEDED)


# -- the last lines ----------------------------------------------------------------------------------------------


def test_the_last_lines(finished: Job, ada: APIClient) -> None:
    for lines, first in ((1, 9), (3, 7), (10, 0), (99, 0)):
        answer = ada.get(route(finished, f"?tail={lines}"))
        assert answer.content == TEN[first * 7 :]
        assert (answer["Motley-Offset"], answer["Motley-Next-Offset"]) == (str(first * 7), str(len(TEN)))
        assert answer["Motley-Log-Complete"] == "true"


def test_a_last_line_without_an_end_is_one(cluster: Lab, ada: APIClient) -> None:
    job = cluster.until_state(cluster.submit("printf 'one\\ntwo\\nthr'"), Job.State.SUCCEEDED)
    assert ada.get(route(job, "?tail=2")).content == b"two\nthr"


def test_lines_are_found_however_long_the_log(cluster: Lab, ada: APIClient) -> None:
    job = cluster.until_state(cluster.submit("seq 1 40000"), Job.State.SUCCEEDED)
    wanted = "".join(f"{n}\n" for n in range(20_001, 40_001)).encode()
    assert ada.get(route(job, "?tail=20000")).content == wanted


def test_from_the_last_lines_one_goes_on_by_offset(launched: Job, cluster: Lab, ada: APIClient) -> None:
    cluster.until(lambda: cluster.output(launched))
    answer = ada.get(route(launched, "?tail=1"))
    assert (answer.content, answer["Motley-Log-Complete"]) == (b"hello\n", "false")
    assert ada.get(route(launched, f"?offset={answer['Motley-Next-Offset']}")).content == b""


WRONG_QUERIES = {
    "tail=0": "/tail",
    "tail=x": "/tail",
    "tail=3&offset=0": "/tail",
    "offset=-1": "/offset",
    "offset=99999999999999999999999": "/offset",
    "attempt=99999999999999999999999": "/attempt",
    "stream=stdin": "/stream",
    "wait=NaN": "/wait",
}


def test_what_cannot_be_asked_is_pointed_at(finished: Job, ada: APIClient) -> None:
    answers = {query: ada.get(route(finished, f"?{query}")) for query in WRONG_QUERIES}
    assert {answer.status_code for answer in answers.values()} == {400}
    pointed_at = {query: [fault["pointer"] for fault in answer.json()["errors"]] for query, answer in answers.items()}
    assert pointed_at == {query: [pointer] for query, pointer in WRONG_QUERIES.items()}


def test_a_rank_beyond_the_gang_is_not_found(finished: Job, ada: APIClient) -> None:
    answer = ada.get(route(finished, "?rank=1"))
    assert (answer.status_code, answer["Content-Type"]) == (404, "application/problem+json")
    assert answer.json()["detail"] == "Attempt 1 has 1 node; ranks start at 0."


# -- ranges ------------------------------------------------------------------------------------------------------


RANGES = {
    "bytes=0-": (0, 70),
    "bytes=7-13": (7, 14),
    "bytes=63-999": (63, 70),
    "bytes=69-69": (69, 70),
    "bytes=-7": (63, 70),
    "bytes=-999": (0, 70),
}


def test_a_range_is_answered_in_part(finished: Job, ada: APIClient) -> None:
    for asked, (start, end) in RANGES.items():
        answer = ada.get(route(finished), headers={"range": asked})
        assert (answer.status_code, body(answer)) == (206, TEN[start:end]), asked
        assert answer["Content-Range"] == f"bytes {start}-{end - 1}/70"
        assert answer["Content-Length"] == str(end - start)


def test_behind_the_end_is_nothing(finished: Job, ada: APIClient) -> None:
    for asked in ("bytes=70-", "bytes=999-1000", "bytes=-0", "bytes=9-3"):
        answer = ada.get(route(finished), headers={"range": asked})
        assert (answer.status_code, answer["Content-Range"]) == (416, "bytes */70"), asked
        assert answer["Content-Type"] == "application/problem+json"


def test_what_is_no_single_range_of_bytes_is_ignored(finished: Job, ada: APIClient) -> None:
    for asked in ("lines=1-2", "bytes=0-1,3-4", "bytes=-", "bytes=x-", "0-1"):
        answer = ada.get(route(finished), headers={"range": asked})
        assert (answer.status_code, answer.content, answer["Accept-Ranges"]) == (200, TEN, "bytes"), asked


def test_a_log_that_was_not_begun_has_no_ranges(cluster: Lab, ada: APIClient) -> None:
    answer = ada.get(route(cluster.submit()), headers={"range": "bytes=0-"})
    assert (answer.status_code, answer["Content-Range"]) == (416, "bytes */0")


# -- events ------------------------------------------------------------------------------------------------------

EVENTS = {"accept": "text/event-stream"}


def events(answer) -> list[tuple[str, int, str]]:
    """Name, id and text of each; comments left out."""
    found = []
    for block in body(answer).decode().split("\n\n"):
        fields = [line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":")]
        if any(name == "event" for name, *_ in fields):
            of = {name: value for name, value in fields if name != "data"}
            found.append((of["event"], int(of["id"]), "\n".join(value for name, value in fields if name == "data")))
    return found


def test_lines_come_as_events_and_the_last_says_so(finished: Job, ada: APIClient) -> None:
    answer = ada.get(route(finished), headers=EVENTS)
    assert (answer["Content-Type"], answer["Cache-Control"]) == ("text/event-stream", "no-cache")
    assert events(answer) == [("log", 70, TEN.decode().rstrip("\n")), ("eof", 70, "")]


def test_the_id_of_the_last_event_goes_on_behind_it(finished: Job, ada: APIClient) -> None:
    answer = ada.get(route(finished), headers=EVENTS | {"last-event-id": "63"})
    assert events(answer) == [("log", 70, "line 9"), ("eof", 70, "")]


def test_events_may_begin_with_the_last_lines(finished: Job, ada: APIClient) -> None:
    assert events(ada.get(route(finished, "?tail=1"), headers=EVENTS))[0] == ("log", 70, "line 9")


def test_an_id_that_is_none_is_refused(finished: Job, ada: APIClient) -> None:
    answer = ada.get(route(finished), headers=EVENTS | {"last-event-id": "x"})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "/Last-Event-ID")


def test_what_a_carriage_return_overwrote_does_not_come(cluster: Lab, ada: APIClient) -> None:
    job = cluster.until_state(cluster.submit("printf 'at 1\\rat 2\\rat 3\\r\\ndone\\n'"), Job.State.SUCCEEDED)
    assert events(ada.get(route(job), headers=EVENTS))[0][2] == "at 3\ndone"


def test_a_line_cannot_pretend_to_be_an_event(cluster: Lab, ada: APIClient) -> None:
    job = cluster.until_state(cluster.submit("printf '\\n\\nevent: eof\\ndata: x\\n\\n'"), Job.State.SUCCEEDED)
    assert [name for name, _, _ in events(ada.get(route(job), headers=EVENTS))] == ["log", "eof"]


def test_bytes_that_are_no_text_do_not_stop_it(cluster: Lab, ada: APIClient) -> None:
    job = cluster.until_state(cluster.submit("printf 'a\\377b\\n'"), Job.State.SUCCEEDED)
    assert events(ada.get(route(job), headers=EVENTS))[0] == ("log", 4, "a\ufffdb")


def test_a_job_that_never_ran_has_an_end_only(cluster: Lab, ada: APIClient) -> None:
    job = cluster.submit()
    ada.post(f"/api/v1/jobs/{job.pk}/cancel")
    assert events(ada.get(route(job), headers=EVENTS)) == [("eof", 0, "")]


def test_a_problem_stays_a_problem(ada: APIClient, finished: Job) -> None:
    answer = ada.get(route(finished, "?rank=9"), headers=EVENTS)
    assert (answer.status_code, answer["Content-Type"]) == (404, "application/problem+json")


@pytest.fixture
def _one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "WAITING_POLLS", 1)


def let_go(answer) -> None:
    """As the server does in the end; but the connection to the database goes on, as the test client keeps it."""
    request_finished.disconnect(close_old_connections)
    answer.close()
    request_finished.connect(close_old_connections)


@pytest.mark.usefixtures("_one_place")
def test_without_a_place_a_stream_has_the_log_as_it_is_and_comes_again(
    launched: Job, cluster: Lab, ada: APIClient
) -> None:
    cluster.until(lambda: cluster.output(launched))
    open_one = ada.get(route(launched), headers=EVENTS)
    second = ada.get(route(launched), headers=EVENTS)
    assert next(iter(second)).startswith(b"retry: ")
    assert events(second) == [("log", 6, "hello")]  # to its end, though the job goes on
    again = ada.get(route(launched), headers=EVENTS | {"last-event-id": "6"})
    assert events(again) == []
    let_go(open_one)


@pytest.mark.usefixtures("_one_place")
def test_without_a_place_a_stream_of_a_job_that_waits_ends_at_once(cluster: Lab, ada: APIClient) -> None:
    with stream_slots.slot_if_free():
        assert events(ada.get(route(cluster.submit(gpus=1)), headers=EVENTS)) == []


def test_many_followers_are_told_when_to_come_again_and_a_single_one_is_not(
    launched: Job, cluster: Lab, ada: APIClient, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "pace", PollRate())
    monkeypatch.setattr(logs, "pace", slots.pace)
    settings.MOTLEY_LOG_POLLS = 1
    cluster.until(lambda: cluster.output(launched))
    told = [ada.get(route(launched, "?wait=0.01")).headers.get("Retry-After") for _ in range(3)]
    assert told[0] is None or int(told[0]) <= 1
    assert int(told[2]) >= 2
    assert "Retry-After" not in ada.get(route(launched)).headers  # who does not follow has no turn


@pytest.mark.usefixtures("_one_place")
def test_a_stream_that_is_closed_unread_frees_its_place(finished: Job, ada: APIClient) -> None:
    for _ in range(3):
        answer = ada.get(route(finished), headers=EVENTS)
        assert not _is_free()
        let_go(answer)
        assert _is_free()


@pytest.mark.usefixtures("_one_place")
def test_a_stream_that_is_read_to_its_end_frees_its_place(finished: Job, ada: APIClient) -> None:
    for _ in range(3):
        answer = ada.get(route(finished), headers=EVENTS)
        assert events(answer)[-1][0] == "eof"
        let_go(answer)
        assert _is_free()


@pytest.fixture
def by_wire(transactional_db: None, lab: Lab, live_server) -> Iterator[httpx.Client]:
    """Ada over a socket."""
    lab.node("n1", gpus=4)
    token = issue_token(lab.user(), name="wire", scope=Scope.READ)
    with httpx.Client(base_url=live_server.url, headers={"authorization": f"Bearer {token}"}, timeout=60) as client:
        yield client


def test_lines_come_while_the_job_runs_and_the_end_when_it_ends(lab: Lab, by_wire: httpx.Client) -> None:
    job = lab.submit(f"echo first; {UNTIL_LET_GO}; echo last")
    lab.running(job)
    with by_wire.stream("GET", route(job), headers=EVENTS) as answer:
        lines = answer.iter_lines()
        assert "data: first" in iter(lines.__next__, "event: eof")
        lab.let_go(job)
        rest = list(lines)
    assert "data: last" in rest
    assert "event: eof" in rest


@pytest.mark.usefixtures("_one_place")
def test_a_reader_who_goes_away_frees_the_place(
    lab: Lab, by_wire: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a writer notices it; the pause between two comments is made short for that."""
    monkeypatch.setattr(following, "KEEP_ALIVE_AFTER", following.KEEP_ALIVE_AFTER / 50)
    job = lab.submit(f"echo first; {UNTIL_LET_GO}")
    lab.running(job)
    with by_wire.stream("GET", route(job), headers=EVENTS) as answer:
        assert "data: first" in answer.iter_lines()
        assert not _is_free()
    lab.until(_is_free)


def test_a_stream_ends_with_the_membership(lab: Lab, by_wire: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "KEEP_ALIVE_AFTER", following.KEEP_ALIVE_AFTER / 50)
    monkeypatch.setattr(following, "CHECK_EVERY_S", 0.0)
    job = lab.submit(f"echo first; {UNTIL_LET_GO}")
    lab.running(job)
    with by_wire.stream("GET", route(job), headers=EVENTS) as answer:
        lines = answer.iter_lines()
        assert "data: first" in lines
        lab.team().members.clear()
        assert "event: eof" not in list(lines)
    assert by_wire.get(route(job), headers=EVENTS).status_code == 404


def _is_free() -> bool:
    with stream_slots.slot_if_free() as is_ours:
        return is_ours


def test_the_tokens_of_others_open_no_stream(cluster: Lab, finished: Job) -> None:
    eve = with_token(issue_token(cluster.user("eve", "language"), name="x", scope=Scope.READ))
    assert eve.get(route(finished), headers=EVENTS).status_code == 404


def test_a_range_with_thousands_of_digits_is_no_range(finished: Job, ada: APIClient) -> None:
    answer = ada.get(f"/api/v1/jobs/{finished.pk}/logs", headers={"range": f"bytes={'9' * 5000}-"})
    assert answer.status_code == 200


def test_polls_that_wait_are_counted_as_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "WAITING_POLLS", 1)
    with stream_slots.slot_if_free() as first, stream_slots.slot_if_free() as second:
        assert (first, second) == (True, False)
    with stream_slots.slot_if_free() as again:
        assert again
