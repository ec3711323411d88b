"""Large bodies: refused above the limit of their route, checked before a lock is taken, answered with few faults."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs_app.models import ApiToken, Job
from tests.rest_callers import caller
from tests.service_lab import Lab
from web.api.lab import LARGEST_BODY_BYTES as LARGEST_TRACE_BYTES
from web.rest.bodies import Strict
from web.rest.errors import MOST_FAULTS
from web.rest.parsers import LARGEST_BATCH_BYTES, LARGEST_BODY_BYTES, LARGEST_SPEC_BYTES, Json

MANY = {f"k{n}": n for n in range(100_000)}
SPEC = {"name": "a", "command": "true", "gpus": 1}
MOST_CPU_S = 20.0
"""Each takes a second at most; with a comparison for each unknown field it took one to two minutes."""
OVER: dict[str, dict[str, Any]] = {
    "unknown fields": MANY,
    "unknown fields of a valid job": SPEC | MANY,
    "values of the environment": SPEC | {"env": {name: {} for name in MANY}},
    "names of the environment": SPEC | {"env": {f"1{name}": "" for name in MANY}},
    "tags": SPEC | {"tags": {name: {} for name in MANY}},
    "rates": SPEC | {"rates": {name: {} for name in MANY}},
    "jobs that it waits for": SPEC | {"after": [{}] * 300_000},
    "unknown fields of jobs that it waits for": SPEC | {"after": [{f"k{n}": 0 for n in range(90)}] * 1000},
    "a long name": SPEC | {"x" * 1_000_000: 0},
    "a long value": SPEC | {"volunteers": "x" * 1_000_000},
}


SWEEP = {"name": "lr", "metric": {"name": "loss"}, "parameters": {"lr": {"min": 0, "max": 1}}, "spec": SPEC}
OVER_STORED: dict[str, dict[str, Any]] = {
    "POST /api/v1/recipes": {"spec": SPEC | MANY, "parameters": {"lr": MANY}},
    "POST /api/v1/recurring-jobs": {"schedule": "0 3 * * *", "spec": SPEC | MANY},
    "POST /api/v1/sweeps": SWEEP | {"spec": SPEC | MANY, "parameters": {"lr": MANY}},
}
USUAL = ("unknown fields of a valid job", "tags", "jobs that it waits for")
"""An unknown name, a value of a map, and an item of a list; the others are of the same kinds."""


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    """No limits of sizes, so that what is behind them is tested, too."""
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = None
    monkeypatch.setattr("web.rest.parsers._refuse_large", lambda _: None)


@pytest.fixture
def job(ada: APIClient, cluster: Lab) -> Job:
    assert ada.post("/api/v1/jobs", SPEC, format="json").status_code == 201
    return Job.objects.get()


def few(answer: Any) -> list[dict[str, Any]]:
    """The faults of an answer, which are few; says of more."""
    assert answer.status_code == 422, answer.content[:500]
    assert len(answer.content) < 100_000 or "/" + "x" * 1_000_000 in answer.json()["errors"][0]["pointer"]
    errors: list[dict[str, Any]] = answer.json()["errors"]
    assert 0 < len(errors) <= MOST_FAULTS + 1
    return errors


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("what", [w if w in USUAL else pytest.param(w, marks=pytest.mark.thorough) for w in OVER])
def test_many_faults_are_answered_with_the_first_of_them(ada: APIClient, job: Job, what: str) -> None:
    began = time.process_time()
    few(ada.post("/api/v1/jobs", OVER[what], format="json"))
    few(ada.post("/api/v1/jobs/batch", {"jobs": [OVER[what]] * 2}, format="json"))
    few(ada.patch(f"/api/v1/jobs/{job.pk}", OVER[what], format="json"))
    assert time.process_time() - began < MOST_CPU_S


@pytest.mark.usefixtures("any_size")
def test_unknown_fields_are_counted(ada: APIClient, job: Job) -> None:
    errors = few(ada.patch(f"/api/v1/jobs/{job.pk}", MANY, format="json"))
    assert errors[0]["pointer"] == "/k0"
    assert errors[-1] == {
        "pointer": "",
        "code": "more_faults",
        "detail": "There are 99,980 more unknown fields, which are not listed.",
    }


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("route", [pytest.param(route, marks=pytest.mark.thorough) for route in OVER_STORED])
def test_many_faults_of_what_is_submitted_later(ada: APIClient, route: str) -> None:
    began = time.process_time()
    few(ada.post(route.split()[1], OVER_STORED[route], format="json"))
    assert time.process_time() - began < MOST_CPU_S


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize(
    "field", ["nodes", "policies", *(pytest.param(n, marks=pytest.mark.thorough) for n in ("team_weights", "quotas"))]
)
def test_many_faults_of_a_lab_run(ada: APIClient, field: str) -> None:
    value = [{}] * 100_000 if field in ("policies", "quotas") else MANY
    began = time.process_time()
    few(ada.post("/api/v1/lab/runs", {"policies": ["fifo"], field: value}, format="json"))
    few(ada.post("/api/v1/lab/runs", {"policies": ["fifo"]} | MANY, format="json"))
    assert time.process_time() - began < MOST_CPU_S


# -- before a lock -----------------------------------------------------------------------------------------------


@pytest.fixture
def depths(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How deep in transactions each body was parsed and checked: no deeper than the test itself."""
    found: list[int] = []
    parse, check = Json.parse, Strict.to_internal_value

    def parsed(self: Json, *args: Any, **kwargs: Any) -> Any:
        found.append(len(connection.savepoint_ids))
        return parse(self, *args, **kwargs)

    def checked(self: Strict, data: Any) -> Any:
        found.append(len(connection.savepoint_ids))
        return check(self, data)

    monkeypatch.setattr(Json, "parse", parsed)
    monkeypatch.setattr(Strict, "to_internal_value", checked)
    yield found
    assert found


WRITES: dict[str, dict[str, Any]] = {
    "POST /api/v1/jobs": SPEC | {"strange": 1},
    "POST /api/v1/jobs/batch": {"jobs": [SPEC | {"strange": 1}]},
    "PATCH /api/v1/jobs/{job}": {"weight": 1.5},
    "POST /api/v1/jobs/{job}/clone": {"strange": 1},
    "POST /api/v1/jobs/{job}/comments": {"text": "a"},
    "PUT /api/v1/teams/vision/members/ben": {"lead": True},
    "PUT /api/v1/teams/vision/member-limits": {"max_gpus_per_member": 2, "idle_gpus_limit_min": None},
    "POST /api/v1/teams/vision/invitations": {"username": "ivy"},
    "PUT /api/v1/teams/vision/budget": {"gpu_hours": 5},
    "POST /api/v1/nodes/n1/drain": {"reason": "fan"},
    "POST /api/v1/windows": {"reason": "fan"},
    "POST /api/v1/policies/preview": {"policy": "fifo"},
    "PUT /api/v1/policies/current": {"policy": "fifo"},
    "POST /api/v1/secrets": {"name": "A", "value": "a long value"},
    "POST /api/v1/tokens": {"name": "a", "scope": "read"},
    "POST /api/v1/lab/runs": {"policies": ["fifo"]},
    "POST /api/v1/notification-targets": {"kind": "webhook", "address": "https://example.org", "events": []},
    "POST /api/v1/agents": {"name": "m1"},
    "POST /api/v1/recipes": {"spec": SPEC},
    "PATCH /api/v1/recipes/{recipe}": {"spec": SPEC | {"gpus": 2}},
    "POST /api/v1/recipes/{recipe}/submit": {"changes": {"strange": 1}},
    "POST /api/v1/recurring-jobs": {"schedule": "0 3 * * *", "spec": SPEC},
    "PATCH /api/v1/recurring-jobs/{recurring}": {"spec": SPEC | {"gpus": 2}},
    "POST /api/v1/sweeps": SWEEP,
}


@pytest.mark.parametrize("route", WRITES)
def test_no_body_is_parsed_or_checked_within_a_transaction(
    cluster: Lab, job: Job, depths: list[int], route: str
) -> None:
    root = caller(cluster.user("root", staff=True), ApiToken.Scope.ADMIN)
    cluster.user("ben")
    method, path = route.split()
    stored = {"recipe": "/api/v1/recipes", "recurring": "/api/v1/recurring-jobs"}
    ids = {
        name: root.post(at, WRITES[f"POST {at}"], format="json").json()["id"]
        for name, at in stored.items()
        if name in path
    }
    depths.clear()
    outside = len(connection.savepoint_ids)
    answer = root.generic(method, path.format(job=job.pk, **ids), json.dumps(WRITES[route]), "application/json")
    assert answer.status_code not in (404, 405, 415), answer.content
    assert set(depths) == {outside}


def test_a_change_that_is_not_valid_takes_no_lock(ada: APIClient, job: Job) -> None:
    with CaptureQueriesContext(
        connection,
    ) as sent:
        few(ada.patch(f"/api/v1/jobs/{job.pk}", {"weight": "much"}, format="json"))
    assert not [one for one in sent.captured_queries if "SAVEPOINT" in one["sql"] or "FOR UPDATE" in one["sql"]]


# -- sizes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("route", "most"),
    [
        ("PATCH /api/v1/jobs/{job}", LARGEST_BODY_BYTES),
        ("POST /api/v1/tokens", LARGEST_BODY_BYTES),
        ("POST /api/v1/jobs", LARGEST_SPEC_BYTES),
        ("POST /api/v1/jobs/{job}/clone", LARGEST_SPEC_BYTES),
        ("POST /api/v1/jobs/batch", LARGEST_BATCH_BYTES),
        ("POST /api/v1/lab/runs", LARGEST_TRACE_BYTES),
    ],
)
def test_a_body_above_the_limit_of_its_route_is_refused_with_it(
    ada: APIClient, job: Job, route: str, most: int
) -> None:
    method, path = route.split()
    path = path.format(job=job.pk)
    for size in (most + 1, most + 3_000_000):  # the second is above the limit of Django, too
        body = b'"%s"' % (b"x" * (size - 2)) if most <= LARGEST_SPEC_BYTES else b"{}"
        answer = ada.generic(method, path, body, "application/json", CONTENT_LENGTH=str(size))
        assert (answer.status_code, answer["Content-Type"]) == (413, "application/problem+json")
        assert (answer.json()["code"], f"{most:,} bytes" in answer.json()["detail"]) == ("too_large", True)
    within = b'{"x": "%s"}' % (b"x" * (min(most, LARGEST_SPEC_BYTES) - 9))
    assert ada.generic(method, path, within, "application/json").status_code == 422
