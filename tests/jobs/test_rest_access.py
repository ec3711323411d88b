"""Permissions over REST: by tokens and their scopes, by teams, and as a running job."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from jobs_app.models import ApiToken, Job
from jobs_app.tokens import JobToken, issue_token, revoke_token
from tests.rest_callers import SPEC, Scope, caller, with_token
from tests.service_lab import UNTIL_LET_GO, Lab

ROUTES = ["/api/v1/jobs", "/api/v1/nodes", "/api/v1/nodes/n1", "/api/v1/rounds", "/api/v1/rounds/1"]
OF_A_JOB = ["", "/explain", "/logs"]


# -- tokens ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ROUTES)
def test_without_a_token_nothing_is_shown(cluster: Lab, api: APIClient, route: str) -> None:
    answer = api.get(route)
    assert (answer.status_code, answer["WWW-Authenticate"]) == (401, 'Bearer realm="motley"')


@pytest.mark.parametrize("route", ROUTES)
def test_a_token_to_read_reads(cluster: Lab, route: str) -> None:
    cluster.tick()
    assert caller(cluster.user(), Scope.READ).get(route).status_code == 200


def test_a_token_to_read_cannot_submit(cluster: Lab) -> None:
    assert caller(cluster.user(), Scope.READ).post("/api/v1/jobs", SPEC, format="json").status_code == 403


def test_a_token_to_read_cannot_cancel(cluster: Lab) -> None:
    job = cluster.submit()
    assert caller(cluster.user(), Scope.READ).post(f"/api/v1/jobs/{job.pk}/cancel").status_code == 403


@pytest.mark.parametrize("text", ["mot_guessed", "job_guessed", "", "\xff"])
def test_a_token_that_was_never_issued_is_refused(cluster: Lab, text: str) -> None:
    assert with_token(text).get("/api/v1/jobs").status_code == 401


def test_an_expired_token_is_refused(cluster: Lab) -> None:
    text = issue_token(cluster.user(), name="old", scope=Scope.READ, expires_at=cluster.now - timedelta(seconds=1))
    assert with_token(text).get("/api/v1/jobs").status_code == 401


def test_a_token_that_expires_later_is_good(cluster: Lab) -> None:
    text = issue_token(cluster.user(), name="new", scope=Scope.READ, expires_at=cluster.now + timedelta(hours=1))
    assert with_token(text).get("/api/v1/jobs").status_code == 200


def test_a_revoked_token_is_refused(cluster: Lab) -> None:
    text = issue_token(cluster.user(), name="test", scope=Scope.READ)
    revoke_token(ApiToken.objects.get())
    assert with_token(text).get("/api/v1/jobs").status_code == 401


def test_the_token_of_an_inactive_user_is_refused(cluster: Lab, ada: APIClient) -> None:
    User.objects.update(is_active=False)
    assert ada.get("/api/v1/jobs").status_code == 401


def test_the_text_of_a_token_is_kept_nowhere(cluster: Lab) -> None:
    text = issue_token(cluster.user(), name="test", scope=Scope.READ)
    assert text not in str(ApiToken.objects.values().get())


def test_the_use_of_a_token_is_noted(cluster: Lab, ada: APIClient) -> None:
    ada.get("/api/v1/jobs")
    assert ApiToken.objects.get().used_at is not None


# -- the token of a job ------------------------------------------------------------------------------------------


@pytest.fixture
def from_within(running: Job) -> APIClient:
    """The running job, with the token from its environment."""
    return with_token(JobToken.issue(running.attempts.get().pk))


def test_a_job_token_ends_with_the_owner_s_membership_and_account(running: Job, cluster: Lab) -> None:
    of_the_job = with_token(JobToken.issue(running.attempts.get().pk))
    address = f"/api/v1/jobs/{running.pk}"
    assert of_the_job.get(address).status_code == 200
    cluster.team().members.clear()
    assert of_the_job.get(address).status_code == 401
    cluster.team().members.add(running.owner)
    User.objects.filter(pk=running.owner_id).update(is_active=False)
    assert of_the_job.get(address).status_code == 401


def test_a_job_finds_its_token_in_its_environment(cluster: Lab) -> None:
    job = cluster.submit(f'echo "$MOTLEY_JOB_TOKEN"; {UNTIL_LET_GO}')
    cluster.running(job)
    text = cluster.until(lambda: cluster.output(job).strip())
    assert with_token(text).get(f"/api/v1/jobs/{job.pk}").status_code == 200


@pytest.mark.parametrize("route", OF_A_JOB)
def test_a_job_sees_itself(running: Job, from_within: APIClient, route: str) -> None:
    assert from_within.get(f"/api/v1/jobs/{running.pk}{route}").status_code == 200


@pytest.mark.parametrize("route", OF_A_JOB)
def test_a_job_does_not_see_another_of_its_owner(cluster: Lab, from_within: APIClient, route: str) -> None:
    assert from_within.get(f"/api/v1/jobs/{cluster.submit().pk}{route}").status_code == 404


def test_a_job_sees_a_list_of_itself(cluster: Lab, running: Job, from_within: APIClient) -> None:
    cluster.submit()
    assert [job["id"] for job in from_within.get("/api/v1/jobs").json()["results"]] == [str(running.pk)]


@pytest.mark.parametrize("route", ROUTES[1:])
def test_a_job_sees_neither_nodes_nor_rounds(from_within: APIClient, route: str) -> None:
    assert from_within.get(route).status_code == 403


def test_a_job_cannot_submit(from_within: APIClient) -> None:
    assert from_within.post("/api/v1/jobs", SPEC, format="json").status_code == 403


def test_the_token_of_an_attempt_that_ended_is_refused(cluster: Lab, running: Job, from_within: APIClient) -> None:
    cluster.let_go(running)
    cluster.until_state(running, Job.State.SUCCEEDED)
    assert from_within.get(f"/api/v1/jobs/{running.pk}").status_code == 401


# -- teams -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", OF_A_JOB)
def test_a_stranger_is_told_that_there_is_no_such_job(cluster: Lab, route: str) -> None:
    job, eve = cluster.submit(), caller(cluster.user("eve", "language"))
    assert eve.get(f"/api/v1/jobs/{job.pk}{route}").status_code == 404


def test_a_stranger_cannot_cancel(cluster: Lab) -> None:
    job, eve = cluster.submit(), caller(cluster.user("eve", "language"))
    assert eve.post(f"/api/v1/jobs/{job.pk}/cancel").status_code == 404


def test_the_list_holds_the_jobs_of_the_callers_teams(cluster: Lab, ada: APIClient) -> None:
    mine = cluster.submit()
    cluster.submit(owner=cluster.user("eve", "language"))
    assert [job["id"] for job in ada.get("/api/v1/jobs").json()["results"]] == [str(mine.pk)]


@pytest.mark.parametrize("route", OF_A_JOB)
def test_another_member_of_the_team_sees_the_job(cluster: Lab, route: str) -> None:
    job, bob = cluster.submit(), caller(cluster.user("bob"))
    assert bob.get(f"/api/v1/jobs/{job.pk}{route}").status_code == 200


def test_staff_see_all_jobs(cluster: Lab) -> None:
    job = cluster.submit()
    assert caller(cluster.user("root", "admins", staff=True)).get(f"/api/v1/jobs/{job.pk}").status_code == 200


@pytest.mark.parametrize("route", OF_A_JOB)
def test_a_job_that_does_not_exist_is_not_found(ada: APIClient, route: str) -> None:
    assert ada.get(f"/api/v1/jobs/{uuid4()}{route}").status_code == 404


def test_an_id_that_is_none_is_not_found(ada: APIClient) -> None:
    assert ada.get("/api/v1/jobs/first").status_code == 404
