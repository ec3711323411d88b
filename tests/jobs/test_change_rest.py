"""Verbs over REST: hold, release, requeue, clone, and changing a job in the state that one has seen."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from audit_app.models import AuditEntry
from jobs_app.errors import Conflict
from jobs_app.lifecycle.commands import change_job, hold_job
from jobs_app.models import Job, JobTag
from jobs_app.secrets import set_secret
from jobs_app.submission.changing import read_change
from tests.rest_callers import SPEC, Scope, caller
from tests.service_lab import UNTIL_LET_GO, Lab
from web.pages.job_editing import changeable


def act(client: APIClient, job: Job, verb: str, body: Any = None) -> Any:
    return client.post(f"/api/v1/jobs/{job.pk}/{verb}", body, format="json")


def change(client: APIClient, job: Job, headers: Any = None, **fields: Any) -> Any:
    return client.patch(f"/api/v1/jobs/{job.pk}", fields, format="json", headers=headers)


def faults_of(answer: Any) -> list[tuple[str, str]]:
    return [(fault["pointer"], fault["code"]) for fault in answer.json()["errors"]]


@pytest.fixture
def queued(cluster: Lab) -> Job:
    return cluster.submit()


@pytest.fixture
def finished(cluster: Lab) -> Job:
    job = cluster.submit()
    Job.objects.filter(pk=job.pk).update(state=Job.State.SUCCEEDED, finished_at=cluster.now)
    job.refresh_from_db()
    return job


# -- hold, release, requeue --------------------------------------------------------------------------------------


def test_holding_answers_the_held_job(ada: APIClient, queued: Job) -> None:
    answer = act(ada, queued, "hold")
    assert (answer.status_code, answer.json()["held"], answer.json()["reason"]) == (202, True, "held")


def test_releasing_answers_the_released_job(ada: APIClient, queued: Job) -> None:
    hold_job(queued, actor=None)
    answer = act(ada, queued, "release")
    assert (answer.status_code, answer.json()["held"]) == (202, False)


def test_requeueing_stops_the_job_first(ada: APIClient, running: Job) -> None:
    answer = act(ada, running, "requeue")
    assert (answer.status_code, answer.json()["state"]) == (202, "stopping")


@pytest.mark.parametrize(("verb", "code"), [("release", "job_is_not_held"), ("requeue", "wrong_state")])
def test_what_the_state_does_not_allow_is_a_conflict(ada: APIClient, queued: Job, verb: str, code: str) -> None:
    answer = act(ada, queued, verb)
    assert (answer.status_code, answer.json()["code"]) == (409, code)


@pytest.mark.parametrize("verb", ["cancel", "hold", "release", "requeue"])
def test_nothing_can_be_done_to_a_finished_job(ada: APIClient, finished: Job, verb: str) -> None:
    assert act(ada, finished, verb).status_code == 409


def test_a_job_that_cannot_be_requeued_says_why_by_its_state(ada: APIClient, finished: Job, queued: Job) -> None:
    refused = act(ada, finished, "requeue").json()
    assert (refused["code"], refused["detail"]) == ("job_is_finished", "The job has already succeeded.")
    assert act(ada, queued, "requeue").json()["detail"] == "The job waits in the queue already."


@pytest.mark.parametrize("verb", ["cancel", "hold", "release", "requeue", "clone"])
def test_a_job_of_strangers_is_not_there(cluster: Lab, queued: Job, verb: str) -> None:
    assert act(caller(cluster.user("eve", "language")), queued, verb).status_code == 404


@pytest.mark.parametrize("verb", ["cancel", "hold"])
def test_the_actor_is_on_the_audit_list(ada: APIClient, queued: Job, verb: str) -> None:
    act(ada, queued, verb)
    entry = AuditEntry.objects.filter(action=f"job.{verb}").get()
    assert (entry.actor_name, entry.target_id) == ("ada", str(queued.pk))


def test_what_failed_is_not_on_the_audit_list(ada: APIClient, finished: Job) -> None:
    act(ada, finished, "cancel")
    assert not AuditEntry.objects.filter(action="job.cancel").exists()


# -- clone -------------------------------------------------------------------------------------------------------


def test_a_clone_asks_for_the_same(ada: APIClient, cluster: Lab) -> None:
    job = cluster.submit(gpus=2, tags={"project": "x"}, time_limit="2h")
    answer = act(ada, job, "clone")
    copy = answer.json()
    assert (answer.status_code, copy["spec"]) == (201, ada.get(f"/api/v1/jobs/{job.pk}").json()["spec"])
    assert copy["id"] != str(job.pk)


def test_a_clone_may_differ_where_one_says_so(ada: APIClient, finished: Job) -> None:
    copy = act(ada, finished, "clone", {"name": "again", "gpus": 2}).json()
    assert (copy["name"], copy["spec"]["gpus"], copy["spec"]["command"]) == ("again", 2, "true")


@pytest.mark.parametrize("body", [{"gpus": 100}, {"gpu": 1}, [], "again"])
def test_a_clone_is_checked_like_any_job(ada: APIClient, queued: Job, body: Any) -> None:
    assert act(ada, queued, "clone", body).status_code == 422


# -- change ------------------------------------------------------------------------------------------------------

CHANGES = [
    ({"name": "other"}, "name", "other"),
    ({"weight": 0.5}, "weight", 0.5),
    ({"tags": {"project": "x"}}, "tags", {"project": "x"}),
    ({"time_limit": "2h"}, "time_limit", "2h"),
    ({"deadline": "2030-01-01T01:00:00+01:00"}, "deadline", "2030-01-01T00:00:00Z"),
    ({"retries": 3}, "retries", 3),
]


@pytest.mark.parametrize(("body", "field", "value"), CHANGES, ids=[field for _, field, _ in CHANGES])
def test_what_may_change_changes(ada: APIClient, queued: Job, body: dict[str, Any], field: str, value: Any) -> None:
    answer = change(ada, queued, **body)
    assert (answer.status_code, answer.json()["spec"][field]) == (200, value)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"deadline": "x"}, "e.g. 2030-12-31T18:00:00Z, or a time from now, e.g. now+2h."),
        ({"deadline": 3}, "e.g. 2030-12-31T18:00:00Z, or a time from now, e.g. now+2h."),
        ({"weight": -1}, "Write a number from 0.000001 to 1,000,000; 1 is usual."),
        ({"weight": "x"}, "Write a number from 0.000001 to 1,000,000; 1 is usual."),
    ],
)
def test_a_value_that_is_none_of_the_field_is_refused_with_its_form(
    ada: APIClient, queued: Job, body: dict[str, Any], words: str
) -> None:
    (fault,) = change(ada, queued, **body).json()["errors"]
    assert fault["detail"].endswith(words)


@pytest.mark.parametrize("field", ["time_limit", "deadline"])
def test_null_lifts_a_limit(ada: APIClient, cluster: Lab, field: str) -> None:
    job = cluster.submit(time_limit="2h", deadline="2030-01-01T00:00:00Z")
    assert field not in change(ada, job, **{field: None}).json()["spec"]


def test_a_change_is_told_in_the_history_and_wakes_the_scheduler(ada: APIClient, cluster: Lab, queued: Job) -> None:
    change(ada, queued, weight=0.5, time_limit="2h")
    event = queued.events.last()
    assert event is not None
    assert (event.kind, event.message) == ("changed", "weight 1 → 0.5; time_limit none → 7200")
    assert event.kind in event.WAKING


def test_a_change_that_changes_nothing_leaves_no_trace(ada: APIClient, queued: Job) -> None:
    change(ada, queued, name=queued.name)
    assert [event.kind for event in queued.events.all()] == ["submitted"]


def test_new_tags_are_found_and_old_ones_are_not(ada: APIClient, cluster: Lab) -> None:
    job = cluster.submit(tags={"a": "1", "b": "2"})
    change(ada, job, tags={"b": "3"})
    assert list(JobTag.objects.values_list("name", "value")) == [("b", "3")]


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ({"workdir": "/x"}, ("/workdir", "immutable")),
        ({"gpu": 2}, ("/gpu", "unknown")),
        ({"weight": 5}, ("/weight", "weight_too_large")),
        ({"weight": "NaN"}, ("/weight", "invalid")),
        ({"retries": -1}, ("/retries", "min_value")),
        ({"name": ""}, ("/name", "blank")),
        ({"tags": {"a=b": "c"}}, ("/tags/a=b", "invalid")),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_may_not_be_is_said_with_its_place(
    ada: APIClient, queued: Job, body: dict[str, Any], fault: tuple[str, str]
) -> None:
    answer = change(ada, queued, **body)
    assert (answer.status_code, faults_of(answer)) == (422, [fault])


def test_staff_may_exceed_the_weight_and_it_is_recorded(cluster: Lab, queued: Job) -> None:
    root = caller(cluster.user("root", "admins", staff=True), Scope.ADMIN)
    assert change(root, queued, weight=5).json()["weight"] == 5
    event = queued.events.last()
    assert event is not None
    assert "weight 5 is above the team's limit of 1" in event.message


def test_a_token_of_scope_submit_makes_nobody_an_administrator(cluster: Lab, queued: Job) -> None:
    clerk = caller(cluster.user("root", "vision", staff=True))
    too_much = {**SPEC, "team": "vision", "weight": 5}
    answers = [
        change(clerk, queued, weight=5),
        clerk.post("/api/v1/jobs", too_much, format="json"),
        clerk.post("/api/v1/jobs/batch", {"jobs": [too_much]}, format="json"),
    ]
    assert [(answer.status_code, faults_of(answer)[0][1]) for answer in answers] == [(422, "weight_too_large")] * 3


def test_a_finished_job_may_be_named_and_tagged(ada: APIClient, finished: Job) -> None:
    assert change(ada, finished, name="best", tags={"keep": ""}).json()["name"] == "best"


def test_a_finished_job_keeps_the_rest(ada: APIClient, finished: Job) -> None:
    answer = change(ada, finished, name="best", weight=0.5)
    assert (answer.status_code, answer.json()["code"]) == (409, "job_is_finished")


def test_a_time_limit_lowered_below_what_it_ran_ends_the_job(ada: APIClient, cluster: Lab, launched: Job) -> None:
    Job.objects.filter(pk=launched.pk).update(ran_s=3600)
    change(ada, launched, time_limit="1h")
    cluster.until_state(launched, Job.State.TIMED_OUT)


# -- the state that one has seen ---------------------------------------------------------------------------------


def test_a_change_to_the_state_that_was_seen_is_made(ada: APIClient, queued: Job) -> None:
    etag = ada.get(f"/api/v1/jobs/{queued.pk}")["ETag"]
    assert change(ada, queued, {"If-Match": etag}, name="other").status_code == 200


def test_a_change_to_another_state_is_refused(ada: APIClient, queued: Job) -> None:
    etag = ada.get(f"/api/v1/jobs/{queued.pk}")["ETag"]
    change(ada, queued, name="first")
    answer = change(ada, queued, {"If-Match": etag}, name="second")
    queued.refresh_from_db()
    assert (answer.status_code, answer.json()["code"], queued.name) == (412, "stale", "first")


def test_the_answer_to_a_change_has_the_new_etag(ada: APIClient, queued: Job) -> None:
    etag = change(ada, queued, name="first")["ETag"]
    assert change(ada, queued, {"If-Match": etag}, name="second").status_code == 200


def test_an_unchanged_state_is_not_sent_again(ada: APIClient, queued: Job) -> None:
    route = f"/api/v1/jobs/{queued.pk}"
    etag = ada.get(route)["ETag"]
    again = ada.get(route, headers={"If-None-Match": f'"other", W/{etag}'})
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", etag)


def test_a_changed_job_is_sent_again(ada: APIClient, queued: Job) -> None:
    etag = ada.get(f"/api/v1/jobs/{queued.pk}")["ETag"]
    hold_job(queued, actor=None)
    assert ada.get(f"/api/v1/jobs/{queued.pk}", headers={"If-None-Match": etag}).status_code == 200


def test_the_etag_is_also_a_field(ada: APIClient, queued: Job) -> None:
    answer = ada.get(f"/api/v1/jobs/{queued.pk}")
    assert answer.json()["etag"] == answer["ETag"]


# -- history -----------------------------------------------------------------------------------------------------


def test_events_are_in_order_and_name_their_actor(ada: APIClient, cluster: Lab, queued: Job) -> None:
    act(ada, queued, "hold")
    page = ada.get(f"/api/v1/jobs/{queued.pk}/events").json()
    assert [(event["kind"], event["actor"]) for event in page["results"]] == [("submitted", "ada"), ("held", "ada")]


def test_a_history_comes_in_pages(ada: APIClient, queued: Job) -> None:
    act(ada, queued, "hold")
    first = ada.get(f"/api/v1/jobs/{queued.pk}/events", {"limit": 1}).json()
    second = ada.get(f"/api/v1/jobs/{queued.pk}/events", {"limit": 1, "cursor": first["next"]}).json()
    assert [page["results"][0]["kind"] for page in (first, second)] == ["submitted", "held"]


def test_attempts_are_told_in_order(ada: APIClient, cluster: Lab) -> None:
    job = cluster.until_state(cluster.submit("exit 3", retries=1), Job.State.FAILED)
    page = ada.get(f"/api/v1/jobs/{job.pk}/attempts").json()
    assert [(attempt["number"], attempt["exit_code"]) for attempt in page["results"]] == [(1, 3), (2, 3)]


def test_whatever_happens_to_a_job_moves_its_time_of_change(ada: APIClient, cluster: Lab) -> None:
    job = cluster.submit(UNTIL_LET_GO)
    seen = []
    for verb in (lambda: cluster.running(job), lambda: act(ada, job, "cancel"), lambda: change(ada, job, name="x")):
        job.refresh_from_db()
        seen.append(job.updated_at)
        verb()
    job.refresh_from_db()
    assert sorted({*seen, job.updated_at}) == [*seen, job.updated_at]


# -- what a queued job requests --------------------------------------------------------------------------------------


def test_a_queued_job_gets_another_command_size_and_environment(cluster: Lab, ada: APIClient) -> None:
    cluster.node("more", gpus=4)
    job = cluster.submit(env={"A": "1"}, tags={"kept": "yes"})
    spec = change(ada, job, command="python other.py", gpus={"min": 1, "max": 2}, env={"B": "2"}).json()["spec"]
    assert (spec["command"], spec["gpus"], spec["env"]) == ("python other.py", {"min": 1, "max": 2}, {"B": "2"})
    assert spec["tags"] == {"kept": "yes"}
    event = job.events.last()
    assert event is not None
    assert event.kind == "changed"
    assert "GPUs 1 → 1 to 2" in event.message
    assert "gpus_m" not in event.message


def test_what_a_submission_would_refuse_a_change_is_refused_too(cluster: Lab, ada: APIClient, queued: Job) -> None:
    answer = change(ada, queued, gpus=5000, env={"MOTLEY_X": "1"})
    assert [pointer for pointer, _ in faults_of(answer)] == ["/env/MOTLEY_X", "/gpus"], "of every field"
    assert [pointer for pointer, _ in faults_of(change(ada, queued, gpus=5000))] == ["/gpus"]
    assert [pointer for pointer, _ in faults_of(change(ada, queued, gpu_types=["nope"]))] == ["/gpu_types"]
    queued.refresh_from_db()
    assert queued.gpus_min == 1


def test_a_change_writes_over_none_that_came_between_its_reading_and_its_writing(cluster: Lab, queued: Job) -> None:
    """What is asked is admitted with the rest of the request, before the lock."""
    read = Job.objects.get(pk=queued.pk)
    slow = read_change(read, {"gpu_types": ["a100"]}, actor=read.owner)
    change_job(read, read_change(read, {"command": "python fixed.py"}, actor=read.owner), actor=read.owner)
    with pytest.raises(Conflict, match="Somebody changed its command, workload in the meantime"):
        change_job(read, slow, actor=read.owner)
    queued.refresh_from_db()
    assert queued.command == "python fixed.py"


def test_a_job_whose_begin_time_has_passed_is_changed(cluster: Lab, ada: APIClient, queued: Job) -> None:
    Job.objects.filter(pk=queued.pk).update(begin_time=cluster.now, deadline=cluster.now)
    assert change(ada, queued, command="python other.py").status_code == 200


def test_the_rates_of_another_program_are_others(cluster: Lab, ada: APIClient) -> None:
    own, named = cluster.submit(command="python a.py"), cluster.submit(command="python a.py", workload="mine")
    for job in (own, named):
        change(ada, job, command="torchrun b.py")
        job.refresh_from_db()
    assert own.workload.endswith("/torchrun")
    assert named.workload == "mine"


def test_the_request_of_a_running_job_is_not_changed(ada: APIClient, running: Job) -> None:
    answer = change(ada, running, command="true")
    assert (answer.status_code, answer.json()["code"]) == (409, "wrong_state")


def test_only_its_owner_changes_what_a_job_runs(cluster: Lab, ada: APIClient) -> None:
    other = caller(cluster.user("bob", "vision"), Scope.SUBMIT)
    job = cluster.submit()
    answer = change(other, job, command="env > /tmp/secrets")
    assert (answer.status_code, answer.json()["code"]) == (403, "not_the_owner")
    assert change(other, job, name="fine").status_code == 200


@pytest.mark.parametrize("fields", [{"command": "env | base64"}, {"setup": "env | base64"}, {"env": {"A": "b"}}])
def test_what_runs_with_secrets_of_its_owner_no_administrator_changes(cluster: Lab, fields: dict[str, Any]) -> None:
    """As they are refused a session in it."""
    set_secret("HF_TOKEN", "long enough", team=None, actor=cluster.user())
    job, root = cluster.submit(secrets=["HF_TOKEN"]), User.objects.create_superuser("root")
    answer = change(caller(root, Scope.ADMIN), job, **fields)
    assert (answer.status_code, answer.json()["code"]) == (403, "not_the_owner")
    assert not {*fields} & changeable(job, root), "nor on the page"
    assert change(caller(root, Scope.ADMIN), job, gpus=2).status_code == 200


def test_a_deadline_before_the_begin_is_refused_at_every_door(cluster: Lab, ada: APIClient, queued: Job) -> None:
    begin, deadline = ((cluster.now + timedelta(hours=hours)).isoformat() for hours in (2, 1))
    spec = {"name": "x", "command": "true", "gpus": 1, "begin_time": begin, "deadline": deadline}
    assert faults_of(ada.post("/api/v1/jobs", spec, format="json")) == [("/deadline", "invalid")]
    assert faults_of(change(ada, queued, begin_time=begin, deadline=deadline)) == [("/deadline", "invalid")]
    assert change(ada, queued, deadline=deadline).status_code == 200
    assert faults_of(change(ada, queued, begin_time=begin)) == [("/deadline", "invalid")]
