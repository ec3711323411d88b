"""The merged log over REST: lines with times and colours, the cursor, the tail and the search."""

from typing import Any

import pytest
from rest_framework.test import APIClient

from jobs_app.models import Job
from tests.service_lab import UNTIL_LET_GO, Lab


def read(client: APIClient, job: Job, **query: Any) -> Any:
    return client.get(f"/api/v1/jobs/{job.pk}/merged-log", query)


def texts(lines: list[dict[str, Any]]) -> list[str]:
    return ["".join(piece["text"] for piece in line["pieces"]) for line in lines]


@pytest.fixture
def finished(cluster: Lab) -> Job:
    job = cluster.submit("echo one; sleep 0.05; printf '\\033[31mtwo\\033[0m <b>\\n' >&2; sleep 0.05; echo three")
    return cluster.until_state(job, Job.State.SUCCEEDED)


def test_both_streams_with_times_and_colours_and_a_search(finished: Job, ada: APIClient) -> None:
    whole = read(ada, finished).json()
    assert texts(whole["lines"]) == ["one", "two <b>", "three"]
    assert [line["stream"] for line in whole["lines"]] == ["stdout", "stderr", "stdout"]
    assert whole["lines"][1]["pieces"][0] == {"text": "two", "style": "in-red"}
    assert all(line["at"] and line["rank"] == 0 for line in whole["lines"])
    assert (whole["attempt"], whole["unfinished"], whole["complete"]) == (1, [], True)
    assert read(ada, finished, cursor=whole["next"]).json()["lines"] == []
    assert texts(read(ada, finished, stream="stderr").json()["lines"]) == ["two <b>"]
    assert texts(read(ada, finished, tail=7).json()["lines"]) == ["three"]
    found = read(ada, finished, search="TWO <").json()
    assert (texts(found["lines"]), found["complete"]) == (["two <b>"], True)


def test_a_running_job_is_followed(cluster: Lab, ada: APIClient) -> None:
    job = cluster.submit(f"printf half; {UNTIL_LET_GO}; echo ' whole'")
    nothing = {"attempt": 0, "lines": [], "unfinished": [], "next": "", "end": "", "more": False, "complete": False}
    assert read(ada, job).json() == nothing
    cluster.running(job)
    first = cluster.until(lambda: told if (told := read(ada, job).json())["unfinished"] else None)
    assert (texts(first["unfinished"]), first["complete"]) == (["half"], False)
    cluster.let_go(job)
    cluster.until_state(job, Job.State.SUCCEEDED)
    last = read(ada, job, cursor=first["next"]).json()
    assert (texts(last["lines"]), last["complete"]) == (["half whole"], True)


def test_a_wrong_query_is_refused(finished: Job, ada: APIClient) -> None:
    told = {query: ada.get(f"/api/v1/jobs/{finished.pk}/merged-log?{query}") for query in WRONG}
    assert {query: answer.status_code for query, answer in told.items()} == WRONG
    for query in ("cursor=x", "tail=3&cursor=0:0:0:0", "stream=order"):
        assert f"/{query.split('=')[0]}" in told[query].content.decode()


WRONG = {
    "cursor=x": 400,
    "cursor=0:0:0": 400,
    "cursor=0:0:-1:0": 400,
    "tail=3&cursor=0:0:0:0": 400,
    "stream=order": 400,
    "rank=1": 404,
    "cursor=7:0:0:0": 404,
    "attempt=2": 404,
}
