"""A service that is root runs its jobs as another user, who can touch nothing of the service's."""

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.local.engine import LocalEngine
from engines.protocol import EngineError, Setup, SiteReason, Stream
from engines.supervision.isolation import Isolation, best_isolation
from tests.engines.engine_lab import Lab

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run jobs as another user")


@pytest.fixture(params=[best_isolation(), Isolation.SUBREAPER], ids=str)
def lab(place: Path, request: pytest.FixtureRequest) -> Iterator[Lab]:
    lab = Lab(place, isolation=request.param, job_user="nobody")
    yield lab
    lab.stop_all()


def test_the_job_has_the_ids_of_the_job_user_and_no_other_group(lab: Lab) -> None:
    nobody = pwd.getpwnam("nobody")
    attempt = lab.run("id -u; id -G; echo $USER")
    assert lab.output(attempt).split() == [str(nobody.pw_uid).encode(), str(nobody.pw_gid).encode(), b"nobody"]


def test_the_job_writes_to_its_own_folders(lab: Lab) -> None:
    attempt = lab.launch('set -e; touch a "$MOTLEY_CHECKPOINT_DIR/b"; echo \'{"step": 1}\' > $MOTLEY_PROGRESS')
    report = lab.end_of(attempt)
    assert (report.exit_code, report.progress and report.progress.step) == (0, 1)


def test_the_job_cannot_read_a_private_file_of_root(lab: Lab, place: Path) -> None:
    secret = place / "secret"
    secret.touch(0o600)
    assert b"Permission denied" in lab.output(lab.run(f"cat {secret}"), Stream.STDERR)


def test_storage_that_the_account_of_jobs_may_not_read_is_as_good_as_missing(lab: Lab, place: Path) -> None:
    private = place / "private"
    private.mkdir(mode=0o700)
    report = lab.end_of(lab.launch("true", mounts={"data": str(private)}))
    assert report.reason is SiteReason.STORAGE_MISSING
    assert report.message == f"The storage data on n1: the account of jobs may not read {private}."


@pytest.mark.parametrize("name", ["launch.json", "stdout.0.log", "lock"])
def test_the_job_cannot_read_the_files_of_its_attempt(lab: Lab, name: str) -> None:
    attempt = lab.run(f'cat "$(dirname $MOTLEY_PROGRESS)/../{name}"')
    assert b"Permission denied" in lab.output(attempt, Stream.STDERR)


@pytest.mark.parametrize("name", ["exit.json", "progress.json", "stop_reason"])
def test_the_job_cannot_forge_the_files_of_its_attempt(lab: Lab, name: str) -> None:
    attempt = lab.run(f'echo x > "$(dirname $MOTLEY_PROGRESS)/../{name}"')
    assert b"Permission denied" in lab.output(attempt, Stream.STDERR)


def test_the_job_gains_no_rights_from_setuid_programs(lab: Lab) -> None:
    attempt = lab.run("grep NoNewPrivs /proc/self/status")
    assert lab.output(attempt).split() == [b"NoNewPrivs:", b"1"]


def test_the_environment_belongs_to_the_job_user_and_what_a_failed_setup_left_is_removed(lab: Lab) -> None:
    lab.run("true", setup=Setup("cd $MOTLEY_ENV_DIR; mkdir -p a/b; chmod 555 a; exit 1", "a1"))
    attempt = lab.run("ls $MOTLEY_ENV_DIR; stat -c %U $MOTLEY_ENV_DIR", setup=Setup("touch $MOTLEY_ENV_DIR/c", "a1"))
    assert lab.output(attempt) == b"c\nnobody\n"
    assert sorted(path.name for path in (lab.root / "environments" / "a1").iterdir()) == ["complete", "env", "lock"]


def test_a_working_folder_that_is_closed_to_the_job_user_is_named(lab: Lab, place: Path) -> None:
    closed = place / "closed"
    closed.mkdir(0o700)
    report = lab.end_of(lab.launch("true", workdir=closed))
    assert report.exit_code == 126
    assert f"has no access to the working folder {closed}" in report.message


def test_a_root_that_the_job_user_cannot_reach_is_refused(place: Path) -> None:
    closed = place / "closed"
    closed.mkdir(0o700)
    with pytest.raises(EngineError, match="cannot reach"):
        LocalEngine(closed / "engine", job_user="nobody")


def test_a_job_user_that_does_not_exist_is_refused(place: Path) -> None:
    with pytest.raises(EngineError, match="no user"):
        LocalEngine(place, job_user="no-such-user")
