"""Files of ended jobs: measured once, and the oldest go where a team has more than its limit."""

from datetime import timedelta
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from engines.local.engine import LocalEngine
from engines.protocol import EngineError
from jobs_app.models import Job
from operations.job_file_retention import add_up_files_of_teams, measure_files
from operations.retention import delete_expired
from tests.rest_callers import caller
from tests.service_lab import Lab

DAY, MIB = timedelta(days=1), 1 << 20


@pytest.fixture
def cluster(lab: Lab, plain_static: None) -> Lab:
    lab.node("n1")
    return lab


def ended(lab: Lab, *, ago: timedelta, mib: int | None = None, owner: User | None = None) -> Job:
    """As rows say that ended so long ago, with a checkpoint of 8 MiB; its files are said to take so much."""
    job = lab.submit(owner=owner)
    (lab.recorded_as_ended(job) / "checkpoints" / "model").write_bytes(bytes(8 * MIB))
    size = None if mib is None else mib * MIB
    Job.objects.filter(pk=job.pk).update(finished_at=timezone.now() - ago, files_bytes=size)
    return job


def limit(lab: Lab, gib: int | None) -> None:
    team = lab.team()
    team.max_files_gib = gib
    team.save()


def checkpoints(lab: Lab, *jobs: Job) -> list[bool]:
    return [(lab.root / "jobs" / str(job.pk) / "checkpoints" / "model").exists() for job in jobs]


def size_of(lab: Lab, job: Job) -> int:
    """As soon as it has been measured."""

    def measured() -> int | None:
        measure_files()
        job.refresh_from_db()
        return job.files_bytes

    return lab.until(measured)


def test_files_of_a_job_are_measured_once_after_its_end(cluster: Lab) -> None:
    job = ended(cluster, ago=DAY)
    job.refresh_from_db()
    changed = job.updated_at
    assert 8 * MIB <= size_of(cluster, job) < 9 * MIB
    assert job.updated_at == changed
    (cluster.root / "jobs" / str(job.pk) / "work" / "more").write_bytes(bytes(8 * MIB))
    assert size_of(cluster, job) < 9 * MIB


def test_the_oldest_files_go_until_the_others_are_within_the_limit(cluster: Lab) -> None:
    limit(cluster, 1)
    ages = (5, 4, 3, 2)
    jobs = [ended(cluster, ago=days * DAY, mib=400) for days in ages]
    delete_expired(timezone.now())
    assert checkpoints(cluster, *jobs) == [False, False, True, True]
    jobs[0].refresh_from_db()
    assert jobs[0].files_deleted_at is not None


def test_a_team_without_a_limit_has_that_of_the_service(cluster: Lab, settings: Settings) -> None:
    old, new = (ended(cluster, ago=days * DAY, mib=800) for days in (3, 2))
    delete_expired(timezone.now())
    assert checkpoints(cluster, old, new) == [True, True]
    settings.MOTLEY_TEAM_FILES_GIB = 1
    delete_expired(timezone.now())
    assert checkpoints(cluster, old, new) == [False, True]


def test_one_team_does_not_pay_for_another(cluster: Lab) -> None:
    eve = cluster.user("eve", "language")
    theirs = ended(cluster, ago=9 * DAY, mib=2048, owner=eve)
    ours = ended(cluster, ago=2 * DAY, mib=2048)
    limit(cluster, 1)
    delete_expired(timezone.now())
    assert checkpoints(cluster, ours, theirs) == [False, True]


def test_files_of_today_and_those_that_an_unfinished_job_needs_stay(cluster: Lab) -> None:
    limit(cluster, 0)
    fresh, parent = ended(cluster, ago=DAY / 2, mib=10), ended(cluster, ago=9 * DAY, mib=10)
    child = cluster.submit(gpus=1, after=[{"job": str(parent.pk)}])
    delete_expired(timezone.now())
    assert checkpoints(cluster, fresh, parent) == [True, True]
    Job.objects.filter(pk=child.pk).update(state=Job.State.CANCELLED, finished_at=timezone.now())
    delete_expired(timezone.now())
    assert checkpoints(cluster, fresh, parent) == [True, False]


def test_files_that_an_unfinished_job_needs_outlive_their_period_too(cluster: Lab) -> None:
    parent = ended(cluster, ago=400 * DAY)
    cluster.submit(gpus=1, after=[{"job": str(parent.pk)}])
    delete_expired(timezone.now())
    assert checkpoints(cluster, parent) == [True]


def test_it_is_counted_beforehand_and_shown(cluster: Lab) -> None:
    limit(cluster, 0)
    job = ended(cluster, ago=2 * DAY, mib=2048)
    told = StringIO()
    call_command("prune", "--dry-run", stdout=told)
    assert "1  files beyond the limit of a team" in told.getvalue()
    assert checkpoints(cluster, job) == [True]
    add_up_files_of_teams()
    staff = cluster.user("root", "admins", staff=True)
    browser = Client()
    browser.force_login(staff)
    shown = browser.get("/retention").content.decode()
    assert "2.0\xa0GB" in shown
    answer = caller(cluster.user()).get("/api/v1/teams/vision").json()
    assert (answer["files_bytes"], answer["max_files_gib"]) == (2048 * MIB, 0)
    delete_expired(timezone.now())
    assert caller(cluster.user()).get("/api/v1/teams/vision").json()["files_bytes"] == 0


def test_retention_says_which_engine_refused_to_delete(cluster: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    ended(cluster, ago=200 * DAY)
    monkeypatch.setattr(LocalEngine, "discard", refuse)
    run = delete_expired(timezone.now())
    assert run.removed["files of jobs that ended"] == 0
    browser = Client()
    browser.force_login(cluster.user("root", "admins", staff=True))
    shown = browser.get("/retention").content.decode()
    assert "files of jobs that ended could not be deleted: local: The disk is read-only." in shown


def refuse(*_: object) -> None:
    raise EngineError("The disk is read-only.")
