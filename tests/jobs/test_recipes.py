"""Recipes: parameters, versions, who may change them, and the jobs that are submitted by them, over REST."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings
from rest_framework.test import APIClient

from audit_app.models import AuditEntry
from jobs_app.code.storage import unused_archives
from jobs_app.errors import Conflict
from jobs_app.models import CodeArchive, Job, Recipe, RecipeVersion
from jobs_app.recipes import editing
from tests.rest.world import stored_code
from tests.rest_callers import SPEC, Scope, caller
from tests.service_lab import Lab

TEN_SECONDS = timedelta(seconds=10)
ADDRESS = "/api/v1/recipes"
TRAIN = {
    "name": "train",
    "description": "ResNet on ImageNet",
    "parameters": {
        "lr": 0.1,
        "gpu_number": {"default": 1, "choices": [1, 2, 4]},
        "data": {"description": "path of the data"},
    },
    "spec": {
        "name": "resnet-${{ gpu_number }}",
        "command": "python train.py --lr ${{ lr }} --data ${{data}}",
        "gpus": "${{ gpu_number }}",
        "env": {"A": "1"},
    },
}


def add(client: APIClient, **fields: Any) -> Any:
    return client.post(ADDRESS, TRAIN | fields, format="json")


def submit(client: APIClient, row: Any, query: str = "", **body: Any) -> Any:
    return client.post(f"{ADDRESS}/{row['id']}/submit{query}", body, format="json")


def change(client: APIClient, row: Any, **body: Any) -> Any:
    return client.patch(f"{ADDRESS}/{row['id']}", body, format="json")


def faults(answer: Any) -> dict[str, str]:
    """Code of each fault by its pointer."""
    assert answer.status_code == 422, answer.content
    return {fault["pointer"]: fault["code"] for fault in answer.json()["errors"]}


def test_it_is_shown_as_it_was_added(ada: APIClient) -> None:
    answer = add(ada)
    assert answer.status_code == 201, answer.content
    row = answer.json()
    told = ("name", "description", "editors", "team", "version", "submissions", "last_job", "changed_by")
    assert [row[name] for name in told] == [
        *("train", "ResNet on ImageNet", "members", "vision", 1, 0, None, "ada"),
    ]
    assert row["spec"] == TRAIN["spec"]
    assert [(one["name"], one["type"], one["default"]) for one in row["parameters"]] == [
        ("lr", "number", 0.1),
        ("gpu_number", "integer", 1),
        ("data", "text", None),
    ]
    assert ada.get(f"{ADDRESS}/{row['id']}").json() == row
    assert [one["id"] for one in ada.get(ADDRESS, {"name": "train"}).json()["results"]] == [row["id"]]


def test_a_job_has_the_values_in_place_and_quoted_for_the_shell(ada: APIClient) -> None:
    row = add(ada).json()
    values = {"lr": "1e-4", "gpu_number": "2", "data": "/my data; rm -rf /"}
    answer = submit(ada, row, parameters=values)
    assert answer.status_code == 201, answer.content
    job = answer.json()
    assert job["spec"]["command"] == "python train.py --lr 0.0001 --data '/my data; rm -rf /'"
    assert (job["name"], job["spec"]["gpus"], job["recipe"], job["recipe_version"]) == ("resnet-2", 2, row["id"], 1)
    assert ada.get(f"{ADDRESS}/{row['id']}").json()["submissions"] == 1
    ada.post("/api/v1/jobs", SPEC, format="json")
    found = ada.get("/api/v1/jobs", {"recipe": "train"}).json()["results"]
    assert [one["id"] for one in found] == [job["id"]]


def test_fields_of_the_job_replace_those_of_the_recipe(ada: APIClient) -> None:
    row = add(ada).json()
    changes = {"gpus": {"min": 1, "max": 2}, "env": {"B": "2"}, "name": "mine"}
    job = submit(ada, row, parameters={"data": "/d"}, changes=changes).json()
    assert (job["name"], job["spec"]["gpus"], job["spec"]["env"]) == (
        "mine",
        {"min": 1, "max": 2},
        {"A": "1", "B": "2"},
    )
    assert faults(submit(ada, row, parameters={"data": "/d"}, changes={"team": "language"})) == {"/team": "immutable"}
    assert faults(submit(ada, row, parameters={"data": "/d"}, changes={"l": 1})) == {"/changes/l": "unknown"}
    assert faults(submit(ada, row, parameters={"data": "/d"}, changes={"gpus": 5000})) == {"/gpus": "gang_too_large"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, {"/parameters/data": "required"}),
        ({"data": "x", "lr": "fast"}, {"/parameters/lr": "invalid"}),
        ({"data": "x", "lr": True}, {"/parameters/lr": "invalid"}),
        ({"data": "x", "lr": "1e999"}, {"/parameters/lr": "invalid"}),
        ({"data": "x", "gpu_number": 3}, {"/parameters/gpu_number": "invalid"}),
        ({"data": "x", "gpu_number": "2.5"}, {"/parameters/gpu_number": "invalid"}),
        ({"data": "a\0b"}, {"/parameters/data": "invalid"}),
        ({"data": "x", "learning_rate": 1}, {"/parameters/learning_rate": "unknown"}),
    ],
)
def test_a_value_that_does_not_fit_is_named(ada: APIClient, values: dict[str, Any], expected: dict[str, str]) -> None:
    assert faults(submit(ada, add(ada).json(), parameters=values)) == expected
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"parameters": {}}, {"/spec": "undeclared"}),
        ({"parameters": TRAIN["parameters"] | {"more": 1}}, {"/parameters/more": "unused"}),  # type: ignore[operator]
        ({"parameters": {"gpus": 1}, "spec": SPEC | {"gpus": "${{gpus}}"}}, {"/parameters/gpus": "field_of_a_job"}),
        ({"parameters": {"a b": 1}, "spec": SPEC}, {"/parameters/a b": "invalid"}),
        ({"parameters": {"n": {"type": "integer", "default": "x"}}}, {"/parameters/n/default": "invalid"}),
        ({"parameters": {"n": {"default": 3, "choices": [1, 2]}}}, {"/parameters/n/default": "invalid"}),
        ({"parameters": {"n": [1]}}, {"/parameters/n/default": "invalid"}),
        ({"parameters": {"x": "a"}, "spec": SPEC | {"command": "echo '${{ x }}'"}}, {"/spec/command": "quoted_twice"}),
        ({"parameters": {}, "spec": SPEC | {"gpus": 0}}, {"/spec/gpus": "invalid"}),
        ({"parameters": {}, "spec": SPEC | {"deadline": "2100-01-01T00:00Z"}}, {"/spec/deadline": "of_one_job"}),
        ({"parameters": {}, "spec": SPEC | {"team": "language"}}, {"/spec/team": "no_such_team"}),
        ({"parameters": {}, "spec": "x"}, {"/spec": "invalid"}),
        ({"parameters": {}, "spec": SPEC, "editors": "leads"}, {"/editors": "not_a_lead"}),
        ({"editors": "all"}, {"/editors": "invalid_choice"}),
    ],
)
def test_what_is_wrong_with_a_recipe_is_said_with_its_place(
    ada: APIClient, fields: dict[str, Any], expected: dict[str, str]
) -> None:
    assert faults(add(ada, **fields)) == expected
    assert not Recipe.objects.exists()


def test_a_parameter_that_is_not_declared_is_a_fault_however_deep_it_is(ada: APIClient) -> None:
    value: Any = "${{ nope }}"
    for _ in range(25):
        value = [value]
        assert add(ada, parameters={}, spec=SPEC | {"links": value}).status_code == 422


def test_of_many_unknown_names_the_first_ones_are_guessed(ada: APIClient) -> None:
    """A guess is a comparison with each known name: one request has a limited number of them."""
    row, names = add(ada).json(), [f"data{n}" for n in range(40)]
    spec = SPEC | {"command": " ".join(f"${{{{ {name} }}}}" for name in ("data", *names))}
    for answer in (
        submit(ada, row, parameters=dict.fromkeys(names, 1)),
        submit(ada, row, parameters={"data": "x"}, changes=dict.fromkeys(names, 1)),
        add(ada, parameters={"data": "x"}, spec=spec),
    ):
        details = [one["detail"] for one in answer.json()["errors"]]
        assert sum("Did you mean 'data'?" in detail for detail in details) == 20, details


def test_a_plan_submits_nothing(ada: APIClient) -> None:
    row = add(ada).json()
    plan = submit(ada, row, "?dry_run=true", parameters={"data": "/d", "gpu_number": 2})
    assert (plan.status_code, plan.json()["spec"]["gpus"]) == (200, 2)
    assert (Job.objects.exists(), Recipe.objects.get().submissions) == (False, 0)


def test_another_spec_is_another_version_and_each_can_be_submitted(ada: APIClient) -> None:
    row = add(ada).json()
    spec = TRAIN["spec"] | {"command": "python better.py ${{ lr }} ${{ data }}"}  # type: ignore[operator]
    assert faults(change(ada, row, spec=True)) == {"/spec": "invalid"}
    assert change(ada, row, description="ResNet-50").json()["version"] == 1
    assert change(ada, row, spec=spec).json()["version"] == 2
    assert change(ada, row, spec=spec).json()["version"] == 2
    values = {"data": "/d"}
    old = submit(ada, row, parameters=values, version=1).json()
    new = submit(ada, row, parameters=values).json()
    assert (old["recipe_version"], new["recipe_version"]) == (1, 2)
    assert ("better.py" in old["spec"]["command"], "better.py" in new["spec"]["command"]) == (False, True)
    listed = ada.get(f"{ADDRESS}/{row['id']}/versions").json()["results"]
    assert [(one["version"], one["author"]) for one in listed] == [(2, "ada"), (1, "ada")]
    assert faults(submit(ada, row, parameters=values, version=3)) == {"/version": "no_such_version"}


def test_of_many_versions_the_oldest_go(ada: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(editing, "MOST_VERSIONS", 2)
    row = add(ada, parameters={}, spec=SPEC).json()
    for gpus in (2, 3):
        change(ada, row, spec=SPEC | {"gpus": gpus})
    assert [one.number for one in RecipeVersion.objects.all()] == [3, 2]


def test_the_same_request_adds_and_submits_once(ada: APIClient) -> None:
    headers = {"Idempotency-Key": "k"}
    first, second = (ada.post(ADDRESS, TRAIN, format="json", headers=headers) for _ in range(2))
    assert (second["Idempotency-Replayed"], second.json()) == ("true", first.json())
    place, body = f"{ADDRESS}/{first.json()['id']}/submit", {"parameters": {"data": "/d"}}
    made, again = (ada.post(place, body, format="json", headers=headers) for _ in range(2))
    assert (made.status_code, again.json()) == (201, made.json())
    assert (Job.objects.count(), Recipe.objects.get().submissions) == (1, 1)


def test_a_change_holds_for_the_state_that_was_read(ada: APIClient) -> None:
    row = add(ada).json()
    read = {"If-Match": row["etag"]}
    place = f"{ADDRESS}/{row['id']}"
    assert ada.patch(place, {"name": "a"}, format="json", headers=read).status_code == 200
    assert ada.patch(place, {"name": "b"}, format="json", headers=read).status_code == 412


def test_a_name_is_once_in_a_team_and_a_team_has_a_limited_number(ada: APIClient, settings: Settings) -> None:
    add(ada)
    assert faults(add(ada)) == {"/name": "name_taken"}
    other = add(ada, name="other").json()
    assert faults(change(ada, other, name="train")) == {"/name": "name_taken"}
    settings.MOTLEY_RECIPES_PER_TEAM = 2
    assert faults(add(ada, name="third")) == {"": "too_many"}


def test_leads_can_keep_changes_to_themselves_and_members_still_submit(cluster: Lab, ada: APIClient) -> None:
    row = add(ada).json()
    ben = caller(cluster.user("ben"))
    assert change(ben, row, description="by ben").status_code == 200
    cluster.team().leads.add(cluster.user())
    assert change(ada, row, editors="leads").status_code == 200
    refused = change(ben, row, description="by ben again")
    assert (refused.status_code, "Only leads" in refused.json()["detail"]) == (403, True)
    assert ben.delete(f"{ADDRESS}/{row['id']}").status_code == 403
    assert submit(ben, row, parameters={"data": "/d"}).json()["owner"] == "ben"
    root = caller(cluster.user("root", "admins", staff=True), Scope.ADMIN)
    assert change(root, row, editors="members").status_code == 200


def test_another_team_sees_nothing_of_it(cluster: Lab, ada: APIClient) -> None:
    row = add(ada).json()
    eve = caller(cluster.user("eve", "language"))
    place = f"{ADDRESS}/{row['id']}"
    statuses = [eve.get(place), eve.get(f"{place}/versions"), submit(eve, row), change(eve, row), eve.delete(place)]
    assert [one.status_code for one in statuses] == [404] * 5
    assert eve.get(ADDRESS).json()["results"] == []
    assert eve.get("/api/v1/jobs", {"recipe": "train"}).json()["results"] == []


def test_its_jobs_stay_when_it_is_deleted(ada: APIClient) -> None:
    row = add(ada).json()
    job = submit(ada, row, parameters={"data": "/d"}).json()
    assert ada.delete(f"{ADDRESS}/{row['id']}").status_code == 204
    assert (Recipe.objects.exists(), RecipeVersion.objects.exists()) == (False, False)
    assert ada.get(f"/api/v1/jobs/{job['id']}").json()["recipe"] is None


def test_the_last_job_tells_its_gpus_and_its_rate(cluster: Lab, ada: APIClient) -> None:
    row = add(ada).json()
    first = Job.objects.get(pk=submit(ada, row, parameters={"data": "/d"}).json()["id"])
    submit(ada, row, parameters={"data": "/e"})  # waits
    cluster.recorded_as_running(first)
    start = first.attempts.get().started_at or cluster.now
    first.attempts.update(first_step=0, first_step_at=start, step=240, step_at=start + TEN_SECONDS)
    last = ada.get(ADDRESS).json()["results"][0]["last_job"]
    assert (last["id"], last["gpu_type"], last["gpu_count"], last["rate"]) == (str(first.pk), "a100", 1, 24.0)


def test_the_list_costs_the_same_however_many_there_are(ada: APIClient) -> None:
    submit(ada, add(ada).json(), parameters={"data": "/d"})
    with CaptureQueriesContext(connection) as one:
        ada.get(ADDRESS)
    for number in range(3):
        submit(ada, add(ada, name=f"train {number}").json(), parameters={"data": "/d"})
    with CaptureQueriesContext(connection) as four:
        assert len(ada.get(ADDRESS).json()["results"]) == 4
    assert len(four) == len(one)


def test_code_of_the_latest_version_stays(cluster: Lab, ada: APIClient) -> None:
    digest = stored_code(cluster.user())
    row = add(ada, parameters={}, spec=SPEC | {"code": digest}).json()
    archive = CodeArchive.objects.get(digest=digest)
    later = archive.used_at + TEN_SECONDS
    assert archive not in unused_archives(later)
    change(ada, row, spec=SPEC)
    assert archive in unused_archives(later)


def test_the_audit_list_has_each_command(ada: APIClient) -> None:
    row = add(ada).json()
    change(ada, row, description="")
    ada.delete(f"{ADDRESS}/{row['id']}")
    done = AuditEntry.objects.filter(action__startswith="recipe.", actor_name="ada", target="train")
    assert {entry.action.split(".")[1] for entry in done} == {"add", "change", "delete"}


def test_two_changes_at_once_leave_nothing_of_the_first_undone(cluster: Lab, ada: APIClient) -> None:
    """Each gives a half of the version; the second has read the other half before the first was written."""
    row = add(ada).json()
    stale = Recipe.objects.select_related("team").get(pk=row["id"])
    assert change(ada, row, spec=TRAIN["spec"] | {"name": "first"}).status_code == 200
    second: dict[str, Any] = {"spec": SPEC | {"name": "second"}, "parameters": []}
    with pytest.raises(Conflict, match="Somebody saved version 2 in the meantime"):
        editing.change_recipe(stale, second, actor=cluster.user(), now=cluster.now)
    assert ada.get(f"{ADDRESS}/{row['id']}").json()["spec"]["name"] == "first"
