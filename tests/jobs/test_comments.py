"""Comments on jobs over REST: who may write and delete them, and how long they stay."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import Settings
from rest_framework.test import APIClient

from audit_app.models import AuditEntry
from jobs_app import job_archive
from jobs_app.errors import JobIsArchived
from jobs_app.job_archive import archive_jobs, archived_job
from jobs_app.lifecycle.comments import MOST_COMMENTS, comment_on_job, delete_comment
from jobs_app.models import Job, JobEvent
from operations.retention import delete_expired
from scheduler_app.round.inputs.reading import newest_events
from tests.rest_callers import Scope, caller
from tests.service_lab import Lab


@pytest.fixture
def job(cluster: Lab) -> Job:
    return cluster.submit()


def say(client: APIClient, job: Job, text: Any) -> Any:
    return client.post(f"/api/v1/jobs/{job.pk}/comments", {"text": text}, format="json")


def delete(client: APIClient, job: Job, comment: int) -> int:
    return client.delete(f"/api/v1/jobs/{job.pk}/comments/{comment}").status_code


def comments(client: APIClient, job: Job) -> list[tuple[str, str]]:
    events = client.get(f"/api/v1/jobs/{job.pk}/events").json()["results"]
    return [(event["actor"], event["message"]) for event in events if event["kind"] == "commented"]


def test_a_comment_is_an_event_with_its_author(cluster: Lab, ada: APIClient, job: Job) -> None:
    ben = caller(cluster.user("ben"))
    answer = say(ada, job, "loss is NaN\n from step 300")
    say(ben, job, "lower the rate")
    assert (answer.status_code, answer.json()["kind"], answer.json()["actor"]) == (201, "commented", "ada")
    assert comments(ben, job) == [("ada", "loss is NaN from step 300"), ("ben", "lower the rate")]
    assert AuditEntry.objects.filter(action="job.comment", target_id=job.pk).count() == 2


def test_a_finished_job_is_commented_on_too_and_no_round_is_due_for_it(cluster: Lab, ada: APIClient, job: Job) -> None:
    ada.post(f"/api/v1/jobs/{job.pk}/cancel")
    cluster.round()
    before = newest_events()
    assert say(ada, job, "replaced by the next").status_code == 201
    assert newest_events() == before


@pytest.mark.parametrize("text", ["", " \n", "x" * 501, "a\0b", 7, None])
def test_what_is_no_comment_is_refused_at_its_field(ada: APIClient, job: Job, text: Any) -> None:
    answer = say(ada, job, text)
    assert (answer.status_code, [fault["pointer"] for fault in answer.json()["errors"]]) == (422, ["/text"])
    assert comments(ada, job) == []


def test_a_job_has_so_many_comments_at_most(ada: APIClient, job: Job) -> None:
    one = JobEvent(job=job, kind=JobEvent.Kind.COMMENTED, message="again")
    JobEvent.objects.bulk_create([one] * MOST_COMMENTS)
    answer = say(ada, job, "one more")
    assert (answer.status_code, "delete one first" in answer.json()["detail"]) == (409, True)


def test_a_comment_is_deleted_by_its_author_or_an_administrator_only(cluster: Lab, ada: APIClient, job: Job) -> None:
    root = caller(cluster.user("root", "admins", staff=True), Scope.ADMIN)
    first, second = (say(ada, job, text).json()["id"] for text in ("my password is", "a typing error"))
    assert delete(caller(cluster.user("ben")), job, first) == 403
    assert (delete(root, job, first), delete(ada, job, second), delete(ada, job, second)) == (204, 204, 404)
    assert comments(ada, job) == []


def test_other_events_cannot_be_deleted(ada: APIClient, job: Job) -> None:
    assert delete(ada, job, job.events.get().pk) == 404


def test_a_comment_stays_when_the_events_go_and_is_in_the_archive(
    cluster: Lab, ada: APIClient, job: Job, settings: Settings
) -> None:
    settings.MOTLEY_KEEP_EVENTS = timedelta(hours=1)
    ada.post(f"/api/v1/jobs/{job.pk}/cancel")
    say(ada, job, "keep this")
    days_ago = timezone.now() - timedelta(days=2)
    JobEvent.objects.update(at=days_ago)
    Job.objects.update(finished_at=days_ago, files_deleted_at=days_ago)
    cluster.submit()  # the newest event stays, and so would its job
    delete_expired(timezone.now())
    assert [event.message for event in job.events.all()] == ["keep this"]
    archive_jobs(Job.objects.filter(pk=job.pk))
    archived = archived_job(job.pk, cluster.user())
    assert archived is not None
    assert [event["message"] for event in archived.events] == ["keep this"]
    assert say(ada, job, "too late").json()["code"] == "job_is_archived"


def test_a_comment_that_comes_while_its_job_is_archived_is_in_the_archive(
    cluster: Lab, ada: APIClient, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada.post(f"/api/v1/jobs/{job.pk}/cancel")
    write = job_archive._write

    def slow_write(*args: Any) -> None:
        write(*args)
        if not comments(ada, job):
            say(ada, job, "just in time")

    monkeypatch.setattr(job_archive, "_write", slow_write)
    job_archive.archive_jobs(Job.objects.filter(pk=job.pk))
    archived = job_archive.archived_job(job.pk, cluster.user())
    assert archived is not None
    assert archived.events[-1]["message"] == "just in time"


def test_a_job_that_was_archived_meanwhile_takes_no_comment(cluster: Lab, ada: APIClient, job: Job) -> None:
    ada.post(f"/api/v1/jobs/{job.pk}/cancel")
    said = JobEvent.objects.get(pk=say(ada, job, "early").json()["id"])
    job_archive.archive_jobs(Job.objects.filter(pk=job.pk))
    with pytest.raises(JobIsArchived):
        comment_on_job(job, "late", actor=cluster.user())
    with pytest.raises(JobIsArchived):
        delete_comment(said, actor=cluster.user(), administrator=False)
