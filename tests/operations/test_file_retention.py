"""Files that no row names go, a day after a process was killed between writing them and its commit; others stay."""

import os
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone
from pytest_django import Settings

from connections_app.agents.uploads import attempt_folder, checkpoints_of
from connections_app.checkpoints.copying import choose, copied
from engines.protocol import Stream
from jobs_app.code.storage import code_root, delete_unless_stored, path_of
from jobs_app.models import CodeArchive, Job
from operations import file_retention
from operations.backup import UNFINISHED
from operations.file_retention import FILE_RULES, SAFE_AGE
from operations.job_file_retention import discard_files
from operations.retention import count_expired, delete_expired
from tests.service_lab import Lab

CHECKPOINTS, LOGS, CODE, UNFINISHED_FILES = (rule.label for rule in FILE_RULES)
YEAR = timedelta(days=365)
DIGEST = "0" * 64


@pytest.fixture
def site(lab: Lab, settings: Settings, tmp_path: Path) -> Lab:
    """Its database is a year old."""
    settings.VAR_DIR, settings.MOTLEY_ARCHIVE_ROOT = tmp_path / "var", tmp_path / "archive"
    MigrationRecorder.Migration.objects.update(applied=timezone.now() - YEAR)
    lab.node("n1")
    return lab


def written(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"content")
    return path


def with_archive(lab: Lab) -> Job:
    """A job whose checkpoints a machine that joined has sent a month ago."""
    job = lab.submit()
    archive, month_ago = written(checkpoints_of(job.pk)), (timezone.now() - timedelta(days=30)).timestamp()
    os.utime(archive, (month_ago, month_ago))
    return job


def copied_and_killed(source: Job) -> UUID:
    """The id of a job whose process was killed before the commit."""
    new = uuid4()
    with copied(choose(source, "."), new):
        return new


def test_a_copy_without_a_job_goes_after_a_day_and_archives_of_jobs_stay(site: Lab) -> None:
    source = with_archive(site)
    lost, now = copied_and_killed(source), timezone.now()
    assert delete_expired(now).removed[CHECKPOINTS] == 0, "the copy may be on its way, though its content is old"
    later = now + SAFE_AGE + timedelta(hours=1)
    assert count_expired(later)[CHECKPOINTS] == 1
    assert delete_expired(later).removed[CHECKPOINTS] == 1
    assert (checkpoints_of(lost).exists(), checkpoints_of(source.pk).exists()) == (False, True)


def test_logs_that_no_attempt_has_go_and_those_of_jobs_stay(site: Lab) -> None:
    """Machines have sent them; a site that deleted an engine before its jobs' files has such logs."""
    kept, deleted = (site.attempt(site.submit(), engine="servers") for _ in range(2))
    Job.objects.filter(pk=deleted.job_id).update(files_deleted_at=site.now)
    names = (kept.pk, deleted.pk, 10**6, -(10**6))
    logs = {name: written(attempt_folder(name).log(Stream.STDOUT, 0)) for name in names}
    now = timezone.now() + 2 * SAFE_AGE
    assert count_expired(now)[LOGS] == 3
    delete_expired(now)
    assert [name for name in names if logs[name].exists()] == [kept.pk]


def test_logs_of_a_deleted_engine_go_with_the_files_of_their_job(site: Lab) -> None:
    job = site.submit()
    attempt = site.attempt(job, engine="desk-that-was")
    log, archive = written(attempt_folder(attempt.pk).log(Stream.STDOUT, 0)), written(checkpoints_of(job.pk))
    assert discard_files(Job.objects.filter(pk=job.pk)).rows == 0
    assert (log.exists(), archive.exists()) == (False, False)


def test_files_from_before_the_database_are_those_of_another(site: Lab) -> None:
    lost = copied_and_killed(with_archive(site))
    MigrationRecorder.Migration.objects.update(applied=timezone.now() + timedelta(hours=1))
    delete_expired(timezone.now() + 2 * SAFE_AGE)
    assert checkpoints_of(lost).exists()


def test_a_batch_at_a_time_is_looked_at(site: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_retention, "FILES_PER_BATCH", 2)
    for _ in range(5):
        written(checkpoints_of(uuid4()))
    batches = FILE_RULES[0].delete_in_batches(timezone.now() + 2 * SAFE_AGE)
    assert next(batches)[0] == 2
    assert len(list(checkpoints_of(uuid4()).parent.iterdir())) == 3


def a_code_archive(lab: Lab, digest: str, *, stored: bool) -> CodeArchive:
    made = CodeArchive.objects.create(
        team=lab.team(), digest=digest, size_bytes=7, unpacked_bytes=9, files=1, stored=stored
    )
    written(path_of(made))
    return made


def test_code_that_is_not_stored_goes_and_what_cannot_be_removed_is_said(site: Lab) -> None:
    stored, dropped = (a_code_archive(site, digit * 64, stored=digit == "1") for digit in "12")
    unrecorded = written(path_of(stored).with_name(path_of(stored).name.replace("1", "3")))
    folder = code_root() / str(site.team().pk) / f"{DIGEST}.tar.gz"
    folder.mkdir()
    delete_expired(timezone.now())
    assert unrecorded.exists()
    run = delete_expired(timezone.now() + SAFE_AGE + timedelta(hours=1))
    assert (run.removed[CODE], path_of(stored).exists()) == (2, True)
    assert (path_of(dropped).exists(), unrecorded.exists()) == (False, False)
    assert str(folder) in run.faults[CODE]


def test_code_that_is_uploaded_meanwhile_stays(site: Lab) -> None:
    uploaded = path_of(a_code_archive(site, DIGEST, stored=True))
    delete_unless_stored(uploaded)
    assert uploaded.exists()


def test_unfinished_files_of_killed_processes_go(site: Lab, settings: Settings) -> None:
    files = [
        written(checkpoints_of(uuid4()).with_name(".agent-7")),
        written(code_root() / "incoming" / "tmp123.tar.gz"),
        written(settings.MOTLEY_ARCHIVE_ROOT / "2026-03" / ".unfinished-123"),
        written(settings.VAR_DIR / f"{UNFINISHED}123" / "database"),
        written(settings.MOTLEY_ARCHIVE_ROOT / f"{UNFINISHED}123" / "database"),
    ]
    delete_expired(timezone.now())
    assert all(path.exists() for path in files)
    assert delete_expired(timezone.now() + SAFE_AGE + timedelta(hours=1)).removed[UNFINISHED_FILES] == 5
    assert not any(path.exists() for path in files)
    assert list(settings.VAR_DIR.iterdir()) == []
