"""Jobs over REST: what answers and faults look like, lists that hold still while jobs arrive, and logs."""

from collections.abc import Iterator
from math import inf
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.test import APIClient

from cluster_app import feasibility_cache
from connections_app.long_requests import LONG
from jobs_app.models import Attempt, Job
from tests.rest_callers import SPEC
from tests.service_lab import Lab

# -- submit and cancel -------------------------------------------------------------------------------------------


def test_a_submitted_job_is_answered_whole(ada: APIClient) -> None:
    answer = ada.post("/api/v1/jobs", SPEC, format="json")
    job = answer.json()
    assert (answer.status_code, job["state"], job["team"], job["owner"], job["attempts"]) == (
        201,
        "queued",
        "vision",
        "ada",
        [],
    )


def test_a_submission_takes_few_statements(ada: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token; the team, when admitted and, shared, when inserted; the job, its tag, event and audit entry."""
    monkeypatch.setattr(feasibility_cache, "GOOD_FOR_S", inf)
    for name in ("one", "two"):
        with CaptureQueriesContext(connection) as statements:
            ada.post("/api/v1/jobs", SPEC | {"name": name, "tags": {"a": "b"}}, format="json")
    words = [statement["sql"].split()[0] for statement in statements.captured_queries]
    assert [word for word in words if word in {"SELECT", "INSERT", "UPDATE"}] == ["SELECT"] * 3 + ["INSERT"] * 4


def test_faults_are_problem_details_with_pointers(ada: APIClient) -> None:
    answer = ada.post("/api/v1/jobs", {"name": "net", "gpu": 1, "gpus": 0}, format="json")
    problem = answer.json()
    assert (answer.status_code, answer["Content-Type"]) == (422, "application/problem+json")
    assert (problem["code"], problem["status"], problem["instance"]) == ("invalid_spec", 422, "/api/v1/jobs")
    assert {fault["pointer"] for fault in problem["errors"]} == {"/command", "/gpu", "/gpus"}


@pytest.mark.parametrize("body", ["{", "[]", "null", '"job"', '{"weight": NaN}', "\xff", "[" * 100_000])
def test_a_body_that_is_no_job_is_a_fault_of_the_caller(ada: APIClient, body: str) -> None:
    answer = ada.post("/api/v1/jobs", body.encode("latin-1"), content_type="application/json")
    assert answer.status_code in {400, 422}
    assert answer["Content-Type"] == "application/problem+json"


def test_an_infeasible_job_is_refused(ada: APIClient) -> None:
    answer = ada.post("/api/v1/jobs", SPEC | {"gpus": 100}, format="json")
    assert answer.json()["errors"][0]["code"] == "gang_too_large"


def test_cancelling_answers_the_job(cluster: Lab, ada: APIClient) -> None:
    answer = ada.post(f"/api/v1/jobs/{cluster.submit().pk}/cancel")
    assert (answer.status_code, answer.json()["state"]) == (202, "cancelled")


def test_cancelling_a_finished_job_is_a_conflict(cluster: Lab, ada: APIClient) -> None:
    job = cluster.submit()
    Job.objects.filter(pk=job.pk).update(state=Job.State.SUCCEEDED, finished_at=cluster.now)
    answer = ada.post(f"/api/v1/jobs/{job.pk}/cancel")
    assert (answer.status_code, answer.json()["code"]) == (409, "job_is_finished")


def test_a_running_job_says_where_it_runs(running: Job, ada: APIClient) -> None:
    job = ada.get(f"/api/v1/jobs/{running.pk}").json()
    assert (job["gpu_type"], job["gpu_count"], job["nodes"]) == ("a100", 1, ["n1"])


def test_what_a_job_says_of_its_spec_can_be_submitted(cluster: Lab, ada: APIClient) -> None:
    job = cluster.submit(gpus={"min": 1, "max": 4}, rates={"a100": {1: 3.0, 4: 9.0}}, time_limit="2h")
    spec = ada.get(f"/api/v1/jobs/{job.pk}").json()["spec"]
    again = ada.post("/api/v1/jobs", spec, format="json").json()
    assert again["spec"] == spec


# -- lists -------------------------------------------------------------------------------------------------------


def pages(client: APIClient, limit: int) -> Iterator[list[str]]:
    query: dict[str, Any] = {"limit": limit}
    while query.get("cursor", "first"):
        page = client.get("/api/v1/jobs", query).json()
        query["cursor"] = page["next"]
        yield [job["name"] for job in page["results"]]


def test_pages_hold_every_job_once(cluster: Lab, ada: APIClient) -> None:
    for n in range(7):
        cluster.submit(name=f"job-{n}")
    assert list(pages(ada, 3)) == [["job-6", "job-5", "job-4"], ["job-3", "job-2", "job-1"], ["job-0"]]


def test_pages_repeat_nothing_while_jobs_arrive(cluster: Lab, ada: APIClient) -> None:
    for n in range(7):
        cluster.submit(name=f"job-{n}")
    seen = []
    for page in pages(ada, 3):
        seen += page
        cluster.submit(name="late")
    assert seen == [f"job-{n}" for n in range(6, -1, -1)]


def test_a_page_has_at_most_two_hundred_jobs(cluster: Lab, ada: APIClient) -> None:
    cluster.submit(array={"start": 0, "end": 250})
    assert len(next(pages(ada, 200))) == 200
    assert ada.get("/api/v1/jobs?limit=201").status_code == 400


def queries_of(client: APIClient, route: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        assert client.get(route).status_code == 200
    return len(queries)


def test_a_list_takes_as_many_queries_for_many_jobs_as_for_few(cluster: Lab, ada: APIClient) -> None:
    parent = cluster.submit()
    cluster.recorded_as_running(parent)
    ada.get("/api/v1/jobs")
    few = queries_of(ada, "/api/v1/jobs")
    cluster.recorded_as_running(*(cluster.submit(name=f"job-{n}") for n in range(3)))
    cluster.submit(array={"start": 0, "end": 30}, after=[{"job": str(parent.pk)}])
    assert queries_of(ada, "/api/v1/jobs") == few


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"state": "cancelled"}, ["two"]),
        ({"state": ["queued", "cancelled"]}, ["two", "one"]),
        ({"q": "on"}, ["one"]),
        ({"team": "language"}, []),
        ({"owner": "ada"}, ["two", "one"]),
    ],
)
def test_lists_are_narrowed(cluster: Lab, ada: APIClient, query: dict[str, Any], names: list[str]) -> None:
    cluster.submit(name="one")
    ada.post(f"/api/v1/jobs/{cluster.submit(name='two').pk}/cancel")
    assert [job["name"] for job in ada.get("/api/v1/jobs", query).json()["results"]] == names


@pytest.mark.parametrize("query", [{"state": "thinking"}, {"array": "x"}, {"created_after": "noon"}, {"cursor": "x"}])
def test_a_query_without_sense_is_a_problem_and_no_crash(ada: APIClient, query: dict[str, str]) -> None:
    assert ada.get("/api/v1/jobs", query).status_code in {400, 404}


# -- logs --------------------------------------------------------------------------------------------------------


def log(client: APIClient, job: Job, **query: Any) -> tuple[bytes, str, str]:
    answer = client.get(f"/api/v1/jobs/{job.pk}/logs", query)
    assert answer.status_code == 200
    return answer.content, answer["Motley-Next-Offset"], answer["Motley-Log-Complete"]


def test_a_log_is_followed_by_its_offset(cluster: Lab, launched: Job, ada: APIClient) -> None:
    cluster.until(lambda: log(ada, launched)[0] == b"hello\n")
    assert [log(ada, launched, offset=n)[:2] for n in (2, 6)] == [(b"llo\n", "6"), (b"", "6")]


def test_a_log_is_cut_at_the_limit(cluster: Lab, launched: Job, ada: APIClient) -> None:
    cluster.until(lambda: log(ada, launched)[0])
    assert log(ada, launched, limit=2)[:2] == (b"he", "2")


def test_the_log_of_a_finished_job_is_complete(cluster: Lab, launched: Job, ada: APIClient) -> None:
    cluster.let_go(launched)
    cluster.until_state(launched, Job.State.SUCCEEDED)
    assert log(ada, launched) == (b"hello\n", "6", "true")


def test_the_log_of_a_job_that_waits_is_empty_and_not_complete(cluster: Lab, ada: APIClient) -> None:
    assert log(ada, cluster.submit()) == (b"", "0", "false")


def test_an_earlier_attempt_has_a_log_of_its_own(cluster: Lab, ada: APIClient) -> None:
    job = cluster.submit('echo "attempt $MOTLEY_ATTEMPT"; test "$MOTLEY_RESUME" = 1 || exit 75')
    cluster.until_state(job, Job.State.SUCCEEDED)
    assert [log(ada, job, attempt=n)[0] for n in (1, 2)] == [b"attempt 1\n", b"attempt 2\n"]


def test_the_browser_never_interprets_a_log(running: Job, ada: APIClient) -> None:
    answer = ada.get(f"/api/v1/jobs/{running.pk}/logs")
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Content-Type"].startswith("text/plain")


@pytest.mark.parametrize(
    ("query", "status"),
    [({"offset": -1}, 400), ({"stream": "both"}, 400), ({"limit": 10**9}, 400), ({"attempt": 9}, 404)],
)
def test_a_request_for_a_log_that_cannot_be_is_refused(
    running: Job, ada: APIClient, query: dict[str, Any], status: int
) -> None:
    assert ada.get(f"/api/v1/jobs/{running.pk}/logs", query).status_code == status


# -- nodes and rounds --------------------------------------------------------------------------------------------


def test_a_node_says_how_many_gpus_are_free(running: Job, ada: APIClient) -> None:
    node = ada.get("/api/v1/nodes/n1").json()
    assert (node["gpus"], node["free_gpus"]) == (4, 3)


def test_a_round_says_what_the_callers_jobs_were_given(cluster: Lab, running: Job, ada: APIClient) -> None:
    cluster.recorded_as_running(cluster.submit(owner=cluster.user("eve", "language")))
    number = Attempt.objects.latest("id").round_number
    decisions = ada.get(f"/api/v1/rounds/{number}").json()["decisions"]
    assert [(decision["job"], decision["gpu_type"]) for decision in decisions] == [(str(running.pk), "a100")]


def test_an_explanation_has_reasons_and_rates(cluster: Lab, ada: APIClient) -> None:
    cluster.recorded_as_running(cluster.submit(gpus=4, preemptible=False))
    job = cluster.submit(rates={"a100": 5.0})
    cluster.decide()
    found = ada.get(f"/api/v1/jobs/{job.pk}/explain").json()
    assert found["reason"] == "insufficient_gpus"
    assert [(rate["rate"], rate["source"]) for rate in found["rates_used"]] == [(5.0, "declared")]


@pytest.mark.parametrize("declared", [{}, {"total_steps": 600}])
def test_a_job_of_which_no_rate_is_known_is_told_none(cluster: Lab, ada: APIClient, declared: dict[str, int]) -> None:
    """Nothing is known of how fast a `sleep` is; what the round counted with is made of its GPUs' specifications."""
    job = cluster.submit("sleep 600", **declared)
    cluster.decide()
    rates = ada.get(f"/api/v1/jobs/{job.pk}/explain").json()["rates_used"]
    assert rates
    assert {(rate["gpu_type"], rate["rate"], rate["source"]) for rate in rates} == {("a100", None, "assumed")}
    assert all(rate["relative"] >= 1 and rate["high"] is None for rate in rates)
    attempt = ada.get(f"/api/v1/jobs/{job.pk}").json()["attempts"][-1]
    assert (attempt["rate"], attempt["rate_source"]) == (None, "assumed")


def test_a_session_in_a_job_that_does_not_run_is_refused_with_why(cluster: Lab, ada: APIClient) -> None:
    job, opens = cluster.submit(), {"HTTP_UPGRADE": "websocket", LONG: "1"}
    waits = ada.get(f"/api/v1/jobs/{job.pk}/session", **opens)
    assert waits.status_code == 409
    assert waits.json()["detail"].startswith("The job is queued, and a session needs a running one")
    Job.objects.filter(pk=job.pk).update(state=Job.State.SUCCEEDED, finished_at=timezone.now())
    over = ada.get(f"/api/v1/jobs/{job.pk}/session", **opens)
    assert over.status_code == 409
    assert over.json()["detail"].startswith("The job has ended (succeeded), and its sessions with it")
