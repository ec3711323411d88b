"""Which tokens are good over REST, and which jobs they show; tests/rest/test_every_route.py asks for every route."""

from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from jobs_app.models import ApiToken, Job
from jobs_app.tokens import JobToken, issue_token, revoke_token
from tests.rest_callers import Scope, caller, with_token
from tests.service_lab import UNTIL_LET_GO, Lab


def statuses(client: APIClient, job: UUID) -> list[int]:
    """What a caller is answered about a job, why it waits, and its log."""
    return [client.get(f"/api/v1/jobs/{job}{of_it}").status_code for of_it in ("", "/explain", "/logs")]


# -- tokens ------------------------------------------------------------------------------------------------------


def test_without_a_token_one_is_asked_for(cluster: Lab, api: APIClient) -> None:
    answer = api.get("/api/v1/jobs")
    assert (answer.status_code, answer["WWW-Authenticate"]) == (401, 'Bearer realm="motley"')


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


def test_a_job_does_not_see_another_of_its_owner(cluster: Lab, from_within: APIClient) -> None:
    assert statuses(from_within, cluster.submit().pk) == [404] * 3


def test_a_job_sees_a_list_of_itself(cluster: Lab, running: Job, from_within: APIClient) -> None:
    cluster.submit()
    assert [job["id"] for job in from_within.get("/api/v1/jobs").json()["results"]] == [str(running.pk)]


def test_the_token_of_an_attempt_that_ended_is_refused(cluster: Lab, launched: Job) -> None:
    of_the_job = with_token(JobToken.issue(launched.attempts.get().pk))
    assert of_the_job.get(f"/api/v1/jobs/{launched.pk}").status_code == 200
    cluster.let_go(launched)
    cluster.until_state(launched, Job.State.SUCCEEDED)
    assert of_the_job.get(f"/api/v1/jobs/{launched.pk}").status_code == 401


# -- teams -------------------------------------------------------------------------------------------------------


def test_the_list_holds_the_jobs_of_the_callers_teams(cluster: Lab, ada: APIClient) -> None:
    mine = cluster.submit()
    cluster.submit(owner=cluster.user("eve", "language"))
    assert [job["id"] for job in ada.get("/api/v1/jobs").json()["results"]] == [str(mine.pk)]


def test_another_member_of_the_team_sees_the_job(cluster: Lab) -> None:
    assert statuses(caller(cluster.user("bob")), cluster.submit().pk) == [200] * 3


def test_a_job_that_does_not_exist_is_not_found(ada: APIClient) -> None:
    assert statuses(ada, uuid4()) == [404] * 3


def test_an_id_that_is_none_is_not_found(ada: APIClient) -> None:
    assert ada.get("/api/v1/jobs/first").status_code == 404
