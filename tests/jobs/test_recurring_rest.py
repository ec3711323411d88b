"""Recurring jobs over REST."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.conf import settings as service_settings
from pytest_django import Settings
from rest_framework.test import APIClient

from audit_app.models import AuditEntry
from jobs_app.models import Job, RecurringJob, RecurringRun
from jobs_app.teams import remove_member
from scheduler_app.recurring_jobs.submission import submit_due_runs
from tests.rest_callers import SPEC, Scope, caller
from tests.service_lab import Lab

ADDRESS = "/api/v1/recurring-jobs"
NIGHTLY = {"schedule": "0 3 * * *", "spec": SPEC}


def add(client: APIClient, **fields: Any) -> Any:
    return client.post(ADDRESS, NIGHTLY | fields, format="json")


def faults(answer: Any) -> dict[str, str]:
    """Code of each fault by its pointer."""
    assert answer.status_code == 422, answer.content
    return {fault["pointer"]: fault["code"] for fault in answer.json()["errors"]}


def verb(client: APIClient, row: dict[str, Any], name: str, **headers: str) -> Any:
    return client.post(f"{ADDRESS}/{row['id']}/{name}", headers=headers)


def test_it_is_shown_as_it_was_added(ada: APIClient) -> None:
    given = {"name": "nightly", "timezone": "Europe/Berlin", "concurrency": "replace", "missed": "once"}
    answer = add(ada, **given)
    assert answer.status_code == 201
    row = answer.json()
    assert {name: row[name] for name in given} == given
    assert (row["team"], row["owner"], row["spec"]) == ("vision", "ada", SPEC)
    assert (row["paused_at"], row["last_run"]) == (None, None)
    due = datetime.fromisoformat(row["next_due_at"]).astimezone(UTC)
    assert (due.hour in (1, 2), due.minute) == (True, 0)
    assert ada.get(f"{ADDRESS}/{row['id']}").json() == row
    assert [one["name"] for one in ada.get(ADDRESS, {"name": "nightly", "team": "vision"}).json()["results"]] == [
        "nightly"
    ]
    assert ada.get(ADDRESS, {"name": "other"}).json()["results"] == []


def test_defaults_are_those_that_start_nothing_twice(ada: APIClient) -> None:
    row = add(ada).json()
    assert (row["name"], row["timezone"], row["concurrency"], row["missed"]) == ("net", "UTC", "forbid", "skip")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"schedule": "0 25 * * *"}, {"/schedule": "schedule"}),
        ({"schedule": "* * * * * *"}, {"/schedule": "schedule"}),
        ({"schedule": "0 0 29 2"}, {"/schedule": "schedule"}),
        ({"schedule": "0 0 30 2 *"}, {"/schedule": "schedule"}),
        ({"timezone": "Berlin"}, {"/timezone": "invalid"}),
        ({"concurrency": "maybe"}, {"/concurrency": "invalid_choice"}),
        ({"missed": "all"}, {"/missed": "invalid_choice"}),
        ({"spec": SPEC | {"gpus": 0}}, {"/spec/gpus": "invalid"}),
        ({"spec": SPEC | {"gpus": 5000}}, {"/spec/gpus": "gang_too_large"}),
        ({"spec": SPEC | {"begin_time": "2100-01-01T00:00Z"}}, {"/spec/begin_time": "not_recurring"}),
        ({"spec": SPEC | {"deadline": "2100-01-01T00:00Z"}}, {"/spec/deadline": "not_recurring"}),
        ({"spec": SPEC | {"team": "language"}}, {"/spec/team": "no_such_team"}),
        ({"spec": SPEC | {"array": "0-9"}, "concurrency": "replace"}, {"/concurrency": "array"}),
        ({"spec": "true"}, {"/spec": "invalid"}),
        ({"cron": "0 3 * * *"}, {"/cron": "unknown"}),
    ],
)
def test_what_is_wrong_is_said_with_its_place(ada: APIClient, fields: dict[str, Any], expected: dict[str, str]) -> None:
    assert faults(add(ada, **fields)) == expected
    assert not RecurringJob.objects.exists()


def test_the_same_request_adds_one(ada: APIClient) -> None:
    headers = {"Idempotency-Key": "k"}
    first, second = (ada.post(ADDRESS, NIGHTLY, format="json", headers=headers) for _ in range(2))
    assert (second.status_code, second["Idempotency-Replayed"], second.json()) == (201, "true", first.json())
    assert RecurringJob.objects.count() == 1


def test_a_name_is_once_in_a_team(cluster: Lab, ada: APIClient) -> None:
    add(ada)
    assert faults(add(ada)) == {"/name": "name_taken"}
    assert add(caller(cluster.user("eve", "language"))).status_code == 201
    other = add(ada, name="other").json()
    assert faults(ada.patch(f"{ADDRESS}/{other['id']}", {"name": "net"}, format="json")) == {"/name": "name_taken"}


def test_a_team_has_a_limited_number(ada: APIClient, settings: Settings) -> None:
    assert service_settings.MOTLEY_RECURRING_JOBS_PER_TEAM == 100
    settings.MOTLEY_RECURRING_JOBS_PER_TEAM = 1
    add(ada)
    assert faults(add(ada, name="second")) == {"": "too_many"}


def test_due_times_may_not_be_closer_than_the_site_allows(ada: APIClient, settings: Settings) -> None:
    settings.MOTLEY_RECURRING_INTERVAL *= 60
    assert faults(add(ada, schedule="0,30 * * * *")) == {"/schedule": "schedule"}
    assert add(ada, schedule="0 * * * *").status_code == 201


def test_a_change_holds_for_the_state_that_was_read(ada: APIClient) -> None:
    first = add(ada).json()
    place = f"{ADDRESS}/{first['id']}"
    read = {"If-Match": first["etag"]}
    changed = ada.patch(place, {"schedule": "0 4 * * *"}, format="json", headers=read)
    assert (changed.status_code, changed.json()["schedule"]) == (200, "0 4 * * *")
    assert changed.json()["next_due_at"][11:16] == "04:00"
    assert ada.patch(place, {"schedule": "0 5 * * *"}, format="json", headers=read).status_code == 412
    assert ada.get(place, headers={"If-None-Match": changed["ETag"]}).status_code == 304
    assert faults(ada.patch(place, {"schedule": "never"}, format="json")) == {"/schedule": "schedule"}
    assert faults(ada.patch(place, {"spec": SPEC | {"gpus": 5000}}, format="json")).keys() == {"/spec/gpus"}


def test_it_can_be_paused_and_resumed(ada: APIClient) -> None:
    row = add(ada).json()
    paused = verb(ada, row, "pause").json()
    assert (paused["next_due_at"], paused["paused_because"]) == (None, "by ada")
    assert verb(ada, row, "pause").status_code == 200
    assert verb(ada, row, "resume").json()["next_due_at"] == row["next_due_at"]


def test_a_run_now_is_an_ordinary_job_that_is_found_by_the_name(ada: APIClient) -> None:
    row = add(ada, name="nightly").json()
    job = verb(ada, row, "run", **{"Idempotency-Key": "k"})
    assert (job.status_code, job.json()["recurring"]) == (201, row["id"])
    assert verb(ada, row, "run", **{"Idempotency-Key": "k"}).json() == job.json()
    ada.post("/api/v1/jobs", SPEC, format="json")
    found = ada.get("/api/v1/jobs", {"recurring": "nightly"}).json()["results"]
    assert [one["id"] for one in found] == [job.json()["id"]]
    assert ada.get("/api/v1/jobs", {"recurring": "other"}).json()["results"] == []
    (run,) = ada.get(f"{ADDRESS}/{row['id']}/runs").json()["results"]
    assert (run["job"], run["state"], run["message"]) == (job.json()["id"], "queued", "run by ada")
    refused = verb(ada, row, "run")
    assert (refused.status_code, job.json()["id"] in refused.json()["detail"]) == (409, True)


def test_runs_say_what_became_of_each_due_time(ada: APIClient) -> None:
    row = add(ada).json()
    due = datetime.fromisoformat(row["next_due_at"])
    submit_due_runs(due)
    RecurringJob.objects.update(next_due_at=due.replace(year=due.year + 1))
    submit_due_runs(due.replace(year=due.year + 1))
    runs = ada.get(f"{ADDRESS}/{row['id']}/runs", {"fields": "outcome,job"}).json()["results"]
    assert runs == [{"outcome": "skipped", "job": None}, {"outcome": "submitted", "job": str(Job.objects.get().pk)}]
    assert ada.get(ADDRESS).json()["results"][0]["last_run"]["outcome"] == "skipped"


def test_its_jobs_stay_when_it_is_deleted(ada: APIClient) -> None:
    row = add(ada).json()
    job = verb(ada, row, "run").json()
    assert ada.delete(f"{ADDRESS}/{row['id']}").status_code == 204
    assert (RecurringJob.objects.exists(), RecurringRun.objects.exists()) == (False, False)
    assert ada.get(f"/api/v1/jobs/{job['id']}").json()["recurring"] is None


def test_nothing_runs_in_the_name_of_an_owner_who_has_left(cluster: Lab, ada: APIClient) -> None:
    row = add(ada).json()
    remove_member(cluster.team(), cluster.user("ada", "language"), actor=cluster.user("root", "admins", staff=True))
    ben = caller(cluster.user("ben"))
    assert ada.get(f"{ADDRESS}/{row['id']}").status_code == 404
    answer = verb(ben, row, "run")
    assert (answer.status_code, "no longer in the team" in answer.json()["detail"]) == (409, True)
    verb(ben, row, "pause")
    assert verb(ben, row, "resume").json()["owner"] == "ben"
    assert verb(ben, row, "run").json()["owner"] == "ben"


def test_an_administrator_is_bound_by_the_limits_of_the_team(cluster: Lab) -> None:
    """The runs come long after: nobody decides on each of them."""
    cluster.team()
    root = caller(cluster.user("root", "admins", staff=True), Scope.ADMIN)
    assert faults(add(root, spec=SPEC | {"weight": 5, "team": "vision"})) == {"/spec/weight": "weight_too_large"}


def test_the_audit_list_has_each_command(ada: APIClient) -> None:
    row = add(ada).json()
    ada.patch(f"{ADDRESS}/{row['id']}", {"missed": "once"}, format="json")
    for name in ("run", "pause", "resume"):
        verb(ada, row, name)
    ada.delete(f"{ADDRESS}/{row['id']}")
    done = AuditEntry.objects.filter(action__startswith="recurring.", actor_name="ada", target="net")
    assert {entry.action.split(".")[1] for entry in done} == {"add", "change", "run", "pause", "resume", "delete"}
