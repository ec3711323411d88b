"""Secrets reach the jobs that name them, and nothing else: no response, page, log, file, archive or audit entry."""

from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings
from rest_framework.test import APIClient

from audit_app.models import AuditEntry
from connections_app.long_requests import LONG
from jobs_app.models import ApiToken, Job, Secret
from tests.rest_callers import caller
from tests.service_lab import UNTIL_LET_GO, Lab

VALUE = "s3cret-Value_of-the-key"
SECRETS = "/api/v1/secrets"
SPEC = {"name": "net", "command": "true", "gpus": 1}


@pytest.fixture
def cluster(lab: Lab, plain_static: None) -> Lab:
    lab.node("n1")
    return lab


@pytest.fixture
def ada(cluster: Lab) -> APIClient:
    return caller(cluster.user())


def set_to(who: APIClient, value: str = VALUE, *, name: str = "KEY", team: str | None = None) -> Any:
    return who.post(SECRETS, {"name": name, "value": value, "team": team}, format="json")


def output(lab: Lab, job: Job) -> str:
    lab.until_state(job, Job.State.SUCCEEDED)
    return lab.output(job)


def test_a_job_that_names_a_secret_has_it_and_its_log_masks_it(cluster: Lab, ada: APIClient) -> None:
    assert set_to(ada).status_code == 201
    script = 'printf %s "$KEY" | wc -c; echo "begin $KEY end"; printf "%s" "${KEY%%-*}"; sleep 0.2; echo "-${KEY#*-}"'
    text = output(cluster, cluster.submit(script, secrets=["KEY"]))
    assert text.split() == [str(len(VALUE)), "begin", "***", "end", "***"]


def test_a_job_that_does_not_name_it_does_not_have_it(cluster: Lab, ada: APIClient) -> None:
    set_to(ada)
    assert output(cluster, cluster.submit('echo "[$KEY]"')) == "[]\n"


def test_the_value_is_in_no_response_page_row_or_audit_entry(cluster: Lab, ada: APIClient) -> None:
    made = set_to(ada)
    job = cluster.submit("true", secrets=["KEY"])
    browser = Client()
    browser.force_login(cluster.user())
    answers = [
        made,
        ada.get(SECRETS),
        ada.get(f"/api/v1/jobs/{job.pk}"),
        browser.get("/secrets"),
        browser.get("/audit"),
    ]
    answers.append(browser.get(f"/jobs/{job.pk}?tab=spec"))
    assert [answer.status_code for answer in answers] == [201, *[200] * 5]
    assert not [answer for answer in answers if VALUE in answer.content.decode()]
    assert "KEY" in answers[-1].content.decode()
    with connection.cursor() as cursor:
        cursor.execute("SELECT encrypted FROM jobs_app_secret")
        assert VALUE not in cursor.fetchone()[0]
    assert AuditEntry.objects.filter(action="secret.set", target="KEY of ada").exists()


def test_no_file_of_a_running_job_has_the_value(cluster: Lab, ada: APIClient) -> None:
    set_to(ada)
    job = cluster.submit(f'echo "$KEY"; {UNTIL_LET_GO}', secrets=["KEY"])
    cluster.running(job)
    cluster.until(lambda: "***" in cluster.output(job))
    files = [path for path in Path(cluster.root).rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if VALUE.encode() in path.read_bytes()]


def test_the_owner_s_secret_goes_before_the_team_s(cluster: Lab, ada: APIClient) -> None:
    set_to(ada, "the-value-of-the-team", team="vision")
    set_to(ada, "ada-has-another-value")
    script = 'printf %s "$KEY" | head -c 3'
    assert output(cluster, cluster.submit(script, secrets=["KEY"])) == "ada"
    bob = cluster.user("bob", "vision")
    assert output(cluster, cluster.submit(script, secrets=["KEY"], owner=bob)) == "the"


def test_only_members_set_use_and_delete_the_secrets_of_a_team(cluster: Lab, ada: APIClient) -> None:
    secret = set_to(ada, team="vision").json()["id"]
    bob = caller(cluster.user("bob", "speech"))
    assert set_to(bob, team="vision").status_code == 422
    assert bob.delete(f"{SECRETS}/{secret}").status_code == 404
    assert bob.get(SECRETS).json()["results"] == []
    refused = bob.post("/api/v1/jobs", {**SPEC, "secrets": ["KEY"]}, format="json")
    assert [(error["pointer"], error["code"]) for error in refused.json()["errors"]] == [
        ("/secrets/0", "no_such_secret")
    ]
    staff = caller(cluster.user("root", "ops", staff=True), ApiToken.Scope.ADMIN)
    assert staff.delete(f"{SECRETS}/{secret}").status_code == 403
    assert ada.delete(f"{SECRETS}/{secret}").status_code == 204
    assert not Secret.objects.exists()


def test_a_secret_of_a_person_is_hidden_from_the_team_and_from_staff(cluster: Lab, ada: APIClient) -> None:
    secret = set_to(ada).json()["id"]
    for other in (cluster.user("bob", "vision"), cluster.user("root", "vision", staff=True)):
        assert caller(other, ApiToken.Scope.ADMIN).get(SECRETS).json()["results"] == []
        assert caller(other, ApiToken.Scope.ADMIN).delete(f"{SECRETS}/{secret}").status_code == 404


@pytest.mark.parametrize(
    ("asked", "pointer"),
    [
        ({"name": "KEY", "value": "short"}, "/value"),
        ({"name": "NO KEY", "value": VALUE}, "/name"),
        ({"name": "1KEY", "value": VALUE}, "/name"),
        ({"name": "KEY", "value": "x" * 40_000}, "/value"),
        ({"name": "KEY", "value": VALUE, "team": "speech"}, "/team"),
        ({"name": "KEY"}, "/value"),
    ],
)
def test_what_is_no_secret_is_refused_by_its_field(asked: dict[str, str], pointer: str, ada: APIClient) -> None:
    answer = ada.post(SECRETS, asked, format="json")
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]
    assert VALUE not in answer.content.decode()


def test_a_name_that_env_has_too_is_refused(ada: APIClient) -> None:
    set_to(ada)
    refused = ada.post("/api/v1/jobs", {**SPEC, "secrets": ["KEY"], "env": {"KEY": "1"}}, format="json")
    assert refused.json()["errors"][0]["code"] == "named_twice"


def session_in(job: Job, who: APIClient) -> Any:
    """The answer to a request for a session, as the server of long requests asks the view."""
    asked: dict[str, Any] = {"HTTP_UPGRADE": "websocket", LONG: True}
    answer: Any = who.get(f"/api/v1/jobs/{job.pk}/session", **asked)
    if answer.status_code == 101:
        answer.give_back()
    return answer


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_session_beside_a_person_s_secret_is_for_its_owner(cluster: Lab, ada: APIClient, is_deleted: bool) -> None:
    """Its processes have the value in their environment, also after it was deleted."""
    secret = set_to(ada).json()["id"]
    job = cluster.submit(UNTIL_LET_GO, secrets=["KEY"])
    cluster.running(job)
    if is_deleted:
        ada.delete(f"{SECRETS}/{secret}")
    others = cluster.user("bob", "vision"), cluster.user("root", "ops", staff=True)
    for other in others:
        refused = session_in(job, caller(other, ApiToken.Scope.ADMIN))
        assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
        assert "secrets of ada" in refused.json()["detail"]
    assert session_in(job, ada).status_code == 101


def test_a_session_beside_secrets_of_the_team_is_for_all_of_it(cluster: Lab, ada: APIClient) -> None:
    set_to(ada, team="vision")
    job = cluster.submit(UNTIL_LET_GO, secrets=["KEY"])
    cluster.running(job)
    assert session_in(job, caller(cluster.user("bob", "vision"))).status_code == 101


def test_a_job_whose_secret_was_deleted_fails_with_its_name(cluster: Lab, ada: APIClient) -> None:
    secret = set_to(ada).json()["id"]
    job = cluster.submit("true", secrets=["KEY"])
    ada.delete(f"{SECRETS}/{secret}")
    failed = cluster.until_state(job, Job.State.FAILED)
    assert "The secret KEY was deleted" in failed.message


def test_who_left_the_team_has_its_secrets_no_more(cluster: Lab, ada: APIClient) -> None:
    set_to(ada, team="vision")
    bob = cluster.user("bob", "vision")
    job = cluster.submit("true", secrets=["KEY"], owner=bob)
    cluster.team("vision").members.remove(bob)
    assert "no longer in its team" in cluster.until_state(job, Job.State.FAILED).message


def test_after_a_rotation_the_old_key_is_not_needed(cluster: Lab, ada: APIClient, settings: Settings) -> None:
    set_to(ada)
    settings.MOTLEY_SECRETS_KEYS = ["new key", f"secrets:{settings.SECRET_KEY}"]
    call_command("rotatesecrets")
    settings.MOTLEY_SECRETS_KEYS = ["new key"]
    script = 'printf %s "$KEY" | wc -c'
    assert output(cluster, cluster.submit(script, secrets=["KEY"])).strip() == str(len(VALUE))


def test_without_its_key_a_job_fails_and_says_what_to_do(cluster: Lab, ada: APIClient, settings: Settings) -> None:
    set_to(ada)
    job = cluster.submit("true", secrets=["KEY"])
    settings.MOTLEY_SECRETS_KEYS = ["another key"]
    assert "MOTLEY_SECRETS_KEYS" in cluster.until_state(job, Job.State.FAILED).message


def test_the_log_of_a_setup_masks_it_too(cluster: Lab, ada: APIClient) -> None:
    set_to(ada)
    job = cluster.submit("true", setup='echo "with $KEY"', secrets=["KEY"])
    cluster.until_state(job, Job.State.SUCCEEDED)
    logs = [path.read_bytes() for path in Path(cluster.root).rglob("setup*.log")]
    assert logs
    assert all(b"with ***" in log and VALUE.encode() not in log for log in logs)


def test_the_page_sets_and_deletes(cluster: Lab) -> None:
    browser = Client()
    browser.force_login(cluster.user())
    assert browser.post("/secrets", {"name": "KEY", "value": VALUE, "team": ""}).status_code == 302
    secret = Secret.objects.get()
    assert "your jobs" in browser.get("/secrets").content.decode()
    browser.post(f"/secrets/{secret.pk}/delete")
    assert not Secret.objects.exists()


def test_secrets_of_many_launches_are_read_at_once(cluster: Lab, ada: APIClient) -> None:
    """Each launch read its own; a batch has a hundred."""
    set_to(ada)
    set_to(ada, "that of the team", name="OURS", team="vision")
    cluster.node("n2", gpus=8)
    jobs = [cluster.submit('test -n "$KEY" && test -n "$OURS"', secrets=["KEY", "OURS"]) for _ in range(5)]
    with CaptureQueriesContext(connection) as asked:
        cluster.tick()
    assert len([query for query in asked if 'FROM "jobs_app_secret"' in query["sql"]]) == 1
    for job in jobs:
        cluster.until_state(job, Job.State.SUCCEEDED)
