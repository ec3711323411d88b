"""A request that is sent again is not done again."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer
from rest_framework.test import APIClient

from jobs_app.models import ApiToken, IdempotencyKey, Job
from jobs_app.submission.idempotency import KeyedRequest
from jobs_app.tokens import issue_token
from tests.jobs.http_requests import post
from tests.rest_callers import SPEC, caller
from tests.service_lab import Lab


def submit(client: APIClient, key: str, route: str = "/api/v1/jobs", **fields: Any) -> Any:
    return client.post(route, SPEC | fields, format="json", headers={"Idempotency-Key": key})


def test_the_same_request_gets_the_first_answer_again(ada: APIClient) -> None:
    first, second = submit(ada, "k"), submit(ada, "k")
    assert (second.status_code, second.json()) == (201, first.json())
    assert ("Idempotency-Replayed" in first, second["Idempotency-Replayed"]) == (False, "true")
    assert Job.objects.count() == 1


def test_the_first_answer_stays_whatever_became_of_the_job(ada: APIClient) -> None:
    first = submit(ada, "k").json()
    ada.post(f"/api/v1/jobs/{first['id']}/cancel")
    assert submit(ada, "k").json() == first


def test_another_body_with_the_same_key_is_refused(ada: APIClient) -> None:
    submit(ada, "k")
    answer = submit(ada, "k", name="other")
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")
    assert [fault["pointer"] for fault in answer.json()["errors"]] == [""]


def test_another_query_with_the_same_key_is_refused(ada: APIClient) -> None:
    """The query says with which checkpoint a clone begins."""
    job = submit(ada, "k").json()
    route = f"/api/v1/jobs/{job['id']}/clone"
    assert submit(ada, "c", route).status_code == 201
    assert submit(ada, "c", f"{route}?checkpoint=step-500").json()["code"] == "idempotency_key_reused"


def test_the_order_of_fields_is_not_another_body(ada: APIClient) -> None:
    for body in ('{"name": "net", "command": "true", "gpus": 1}', '{"gpus":1,"command":"true","name":"net"}'):
        answer = ada.post("/api/v1/jobs", body, content_type="application/json", headers={"Idempotency-Key": "k"})
    assert answer["Idempotency-Replayed"] == "true"


def test_a_refused_request_may_come_better_with_the_same_key(ada: APIClient) -> None:
    assert submit(ada, "k", gpus=0).status_code == 422
    assert submit(ada, "k").status_code == 201


def test_keys_of_others_are_others(cluster: Lab, ada: APIClient) -> None:
    submit(ada, "k")
    assert submit(caller(cluster.user("bob")), "k", name="other").status_code == 201


def test_keys_of_other_routes_are_others(ada: APIClient) -> None:
    job = submit(ada, "k").json()
    answer = ada.post(f"/api/v1/jobs/{job['id']}/clone", {}, format="json", headers={"Idempotency-Key": "k"})
    assert (answer.status_code, answer.json()["id"] != job["id"]) == (201, True)


def test_a_batch_is_submitted_once(ada: APIClient) -> None:
    body = {"jobs": [SPEC, SPEC]}
    first, second = (
        ada.post("/api/v1/jobs/batch", body, format="json", headers={"Idempotency-Key": "k"}) for _ in range(2)
    )
    assert (second.json(), Job.objects.count()) == (first.json(), 2)


@pytest.mark.parametrize("key", ["", "x" * 201, "naïve", "two\tparts"])
def test_a_key_that_is_none_is_refused(ada: APIClient, key: str) -> None:
    assert submit(ada, key).status_code == 400


def test_a_key_is_forgotten_after_the_time_that_the_administrator_set(ada: APIClient, settings: Settings) -> None:
    settings.MOTLEY_KEEP_IDEMPOTENCY_KEYS = timedelta(hours=2)
    submit(ada, "k")
    IdempotencyKey.objects.update(created_at=timezone.now() - timedelta(minutes=119))
    assert submit(ada, "k")["Idempotency-Replayed"] == "true"
    IdempotencyKey.objects.update(created_at=timezone.now() - timedelta(minutes=121))
    assert submit(ada, "k", name="other").status_code == 201
    assert submit(ada, "k", name="other")["Idempotency-Replayed"] == "true"


# -- at the same time (tests/stack has processes that do, on both databases) --------------------------------------

only_there = pytest.mark.skipif(
    connection.vendor != "postgresql", reason="SQLite lets one writer in at a time: no request finds another under way"
)


@pytest.fixture
def token(transactional_db: None, lab: Lab) -> str:
    lab.node("n1", gpus=4)
    return issue_token(lab.user(), name="test", scope=ApiToken.Scope.SUBMIT)


def test_one_of_many_at_the_same_time_is_done(token: str, live_server: LiveServer) -> None:
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "k"}
    barrier = Barrier(8)

    def send(_: int) -> tuple[int, Any]:
        barrier.wait()
        return post(f"{live_server.url}/api/v1/jobs", SPEC, headers)

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(send, range(8)))
    assert Job.objects.count() == 1
    assert {answer["id"] for status, answer in answers if status == 201} == {str(Job.objects.get().pk)}
    assert {answer["code"] for status, answer in answers if status != 201} <= {"in_progress"}


@only_there
def test_while_the_first_is_under_way_the_second_is_told_to_ask_again(
    token: str, lab: Lab, live_server: LiveServer
) -> None:
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "k"}
    with KeyedRequest(lab.user(), "POST /api/v1/jobs", "k", digest="").exclusive():
        status, problem = post(f"{live_server.url}/api/v1/jobs", SPEC, headers)
    assert (status, problem["code"], Job.objects.count()) == (409, "in_progress", 0)
    assert post(f"{live_server.url}/api/v1/jobs", SPEC, headers)[0] == 201
