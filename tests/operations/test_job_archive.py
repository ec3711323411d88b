"""A job that ended a year ago leaves the database for the archive, and is found there by those who might see it."""

import gzip
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import DatabaseError
from django.test import Client
from django.utils import timezone
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs_app import job_archive
from jobs_app.job_archive import archive_files
from jobs_app.models import ApiToken, Attempt, GpuClaim, Job, JobEvent, JobTag
from jobs_app.tokens import JobToken
from operations.retention import delete_expired
from tests.rest_callers import caller, with_token
from tests.service_lab import Lab

DAY = timedelta(days=1)
YEAR = timedelta(days=366)


@pytest.fixture(autouse=True)
def archive(settings: Settings, tmp_path: Path) -> Path:
    settings.MOTLEY_ARCHIVE_ROOT = tmp_path / "archive"
    return tmp_path / "archive"


@pytest.fixture
def cluster(lab: Lab, plain_static: None) -> Lab:
    lab.node("n1")
    return lab


@pytest.fixture
def ada(cluster: Lab) -> APIClient:
    return caller(cluster.user())


def ended(lab: Lab, *, ago: timedelta = YEAR, **spec: Any) -> Job:
    job = lab.until_state(lab.submit("echo said", tags={"run": "7"}, **spec), Job.State.SUCCEEDED)
    Job.objects.filter(pk=job.pk).update(finished_at=timezone.now() - ago)
    return job


@pytest.fixture
def old(cluster: Lab) -> Job:
    """A job of last year; another was submitted since, as the one with the newest event stays."""
    job = ended(cluster, name="of-last-year")
    cluster.submit()
    return job


def archived(job: Job) -> None:
    delete_expired(timezone.now())
    assert not Job.objects.filter(pk=job.pk).exists()


def test_an_archived_job_is_answered_at_its_address_as_it_was(old: Job, ada: APIClient) -> None:
    address = f"/api/v1/jobs/{old.pk}"
    before = [ada.get(address + part).json() for part in ("", "/events", "/attempts")]
    archived(old)
    job, events, attempts = [ada.get(address + part).json() for part in ("", "/events", "/attempts")]
    changed = {"files_deleted_at", "finished_at", "updated_at", "archived", "etag"}
    assert {name for name in job if job[name] != before[0][name]} <= changed
    assert job["archived"]
    assert (events["results"], attempts["results"]) == (before[1]["results"], before[2]["results"])
    assert ada.get(address, headers={"If-None-Match": job["etag"]}).status_code == 304
    assert ada.get(f"{address}?fields=state").json() == {"state": "succeeded"}


def test_nothing_of_it_is_left_in_the_database(old: Job, ada: APIClient) -> None:
    attempts = [attempt.pk for attempt in old.attempts.all()]
    archived(old)
    rows = (Attempt, JobEvent, JobTag)
    assert [model._default_manager.filter(job_id=old.pk).count() for model in rows] == [0, 0, 0]
    assert not GpuClaim.objects.filter(attempt__in=attempts).exists()
    assert str(old.pk) not in ada.get("/api/v1/jobs").content.decode()


def test_only_its_team_and_staff_find_it(old: Job, cluster: Lab) -> None:
    archived(old)
    theirs = caller(cluster.user("bob", "speech"))
    staff = caller(cluster.user("root", staff=True), ApiToken.Scope.ADMIN)
    for part in ("", "/events", "/attempts", "/logs"):
        assert theirs.get(f"/api/v1/jobs/{old.pk}{part}").status_code == 404
    assert theirs.post(f"/api/v1/jobs/{old.pk}/clone").status_code == 404
    assert staff.get(f"/api/v1/jobs/{old.pk}").status_code == 200
    browser = Client()
    browser.force_login(cluster.user("bob", "speech"))
    assert browser.get(f"/jobs/{old.pk}").status_code == 404
    assert browser.get(f"/jobs/new?clone={old.pk}").status_code == 404


def test_the_token_of_a_job_does_not_open_the_archive(old: Job, cluster: Lab) -> None:
    running = cluster.submit("sleep 1000")
    cluster.running(running)
    archived(old)
    attempt = running.attempts.get()
    assert with_token(JobToken.issue(attempt.pk)).get(f"/api/v1/jobs/{old.pk}").status_code == 404


def test_an_archived_job_is_cloned_but_not_changed(old: Job, ada: APIClient) -> None:
    archived(old)
    address = f"/api/v1/jobs/{old.pk}"
    for answer in (ada.post(f"{address}/cancel"), ada.patch(address, {"name": "other"}, format="json")):
        assert (answer.status_code, answer.json()["code"]) == (409, "job_is_archived")
    clone = ada.post(f"{address}/clone")
    assert (clone.status_code, clone.json()["spec"]["command"]) == (201, "echo said")
    log = ada.get(f"{address}/logs")
    assert (log.status_code, log.json()["code"]) == (410, "files_deleted")


def test_its_page_says_that_it_is_archived_and_the_search_finds_it(old: Job, cluster: Lab) -> None:
    archived(old)
    browser = Client()
    browser.force_login(cluster.user())
    page = browser.get(f"/jobs/{old.pk}").content.decode()
    assert "This job is in the archive" in page
    assert "of-last-year" in page
    assert "echo said" in page
    assert f'href="/jobs/{old.pk}"' in browser.get(f"/jobs?q={old.pk}").content.decode()
    assert "echo said" in browser.get(f"/jobs/new?clone={old.pk}&mode=yaml").content.decode()


def lines(paths: list[Path]) -> Iterator[dict[str, Any]]:
    for path in paths:
        with gzip.open(path, "rt") as file:
            yield from map(json.loads, file)


def test_files_are_by_month_and_hold_a_job_per_line(old: Job, archive: Path) -> None:
    archived(old)
    (path,) = archive_files()
    assert path.parent == archive / f"{old.created_at:%Y-%m}"
    assert [line["name"] for line in lines([path])] == ["of-last-year"]
    assert path.parent.stat().st_mode & 0o077 == 0
    assert path.stat().st_mode & 0o077 == 0


def test_a_job_stays_until_its_files_are_deleted(old: Job, settings: Settings) -> None:
    settings.MOTLEY_KEEP_FILES = 2 * YEAR
    delete_expired(timezone.now())
    assert Job.objects.filter(pk=old.pk).exists()


def test_a_job_that_an_unfinished_job_needs_stays(old: Job, cluster: Lab) -> None:
    waiting = cluster.submit(after=[{"job": str(old.pk)}])
    delete_expired(timezone.now())
    assert waiting.needs.get().parent == old


def test_nothing_is_deleted_that_could_not_be_written(old: Job, archive: Path) -> None:
    archive.write_text("a file where the folder should be")
    run = delete_expired(timezone.now())
    assert Job.objects.filter(pk=old.pk).exists()
    assert list(run.faults) == ["jobs that ended, to the archive"]
    run.refresh_from_db()
    assert run.removed["files of jobs that ended"] == 1
    archive.unlink()
    archived(old)


def test_a_job_that_is_renamed_while_it_is_archived_keeps_its_new_name(
    old: Job, ada: APIClient, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the file and the removal from the database."""
    write = job_archive._write

    def written_and_renamed(*told: Any) -> None:
        write(*told)
        Job.objects.filter(pk=old.pk).exclude(name="renamed").update(name="renamed")

    monkeypatch.setattr(job_archive, "_write", written_and_renamed)
    archived(old)
    assert ada.get(f"/api/v1/jobs/{old.pk}").json()["name"] == "renamed"
    assert len(list(lines(list(archive.glob("*/*"))))) == 1


def test_a_job_that_was_written_but_not_deleted_is_found_once(
    old: Job, ada: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("jobs_app.job_archive.transaction", SimpleNamespace(atomic=broken))
        delete_expired(timezone.now())
    assert Job.objects.filter(pk=old.pk).exists()
    assert not ada.get(f"/api/v1/jobs/{old.pk}").json()["archived"]
    archived(old)
    assert [line["id"] for line in lines(archive_files())] == [str(old.pk)]


def broken() -> None:
    raise DatabaseError("the database went away")


@pytest.mark.parametrize("pk", ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-7fff-bfff-ffffffffffff", "x"])
def test_what_is_no_job_is_not_found(pk: str, ada: APIClient, cluster: Lab) -> None:
    assert ada.get(f"/api/v1/jobs/{pk}").status_code == 404
    assert ada.get(f"/api/v1/jobs?q={pk}").status_code == 200


@pytest.mark.parametrize("kept", [0, 40])
def test_a_job_of_a_damaged_file_is_not_found_and_no_error(ada: APIClient, old: Job, kept: int) -> None:
    job_archive.archive_jobs(Job.objects.filter(pk=old.pk))
    (path,) = archive_files()
    path.write_bytes(path.read_bytes()[:kept] + bytes(8))
    assert ada.get(f"/api/v1/jobs/{old.pk}").status_code == 404
