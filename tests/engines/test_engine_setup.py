"""The setup of a job: its environment is made once, shared by jobs with the same key, and its log is apart."""

import os
import shlex
import struct
import sys
import time
from datetime import timedelta
from fcntl import F_OFD_SETLK, F_RDLCK, F_UNLCK, F_WRLCK, LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, fcntl
from pathlib import Path

import pytest

from engines.attempt_files import AttemptFolder, write_json
from engines.protocol import Phase, Setup, StopReason, Stream
from engines.supervision.environment_setup import Entry, Environment
from tests.engines.engine_lab import Lab, until
from tests.engines.test_engine_code import archive

MAKE = "echo made >&2; cd $MOTLEY_ENV_DIR; mkdir bin; echo 'echo tool' > bin/tool; chmod +x bin/tool"


GRACE = timedelta(seconds=30)


def with_setup(command: str = MAKE, key: str = "a1") -> Setup:
    return Setup(command, key)


@pytest.mark.on_slurm
def test_programs_of_the_environment_are_found_and_a_second_job_makes_nothing(lab: Lab) -> None:
    first = lab.run("tool", setup=with_setup())
    second = lab.run("tool; echo $VIRTUAL_ENV", setup=with_setup("exit 1"))
    assert (lab.output(first), lab.output(first, Stream.SETUP)) == (b"tool\n", b"made\n")
    assert lab.output(second).startswith(b"tool\n/")
    assert lab.output(second, Stream.SETUP) == b"The environment exists: it was made by attempt 1.\n"


@pytest.mark.on_slurm
def test_how_long_code_and_setup_took_is_reported_of_a_job_that_has_them(lab: Lab, tmp_path: Path) -> None:
    code = archive(tmp_path, {"a.txt": "as packed"})
    attempt = lab.launch(
        "cat a.txt; tool; sleep 3600", code=code, fetched_s=5.0, setup=with_setup(f"sleep 0.2; {MAKE}")
    )
    lab.wait_for_output(attempt, b"tool")
    report = lab.report(attempt)
    assert report.code_s is not None
    assert report.setup_s is not None
    assert 5 < report.code_s < 60
    assert 0.2 <= report.setup_s < 60
    lab.engine.stop(attempt, reason=StopReason.CANCEL, grace=timedelta())
    ended = lab.end_of(attempt)
    assert (ended.code_s, ended.setup_s) == (report.code_s, report.setup_s)
    without = lab.report(lab.run("true"))
    assert (without.code_s, without.setup_s) == (None, None)


def test_jobs_with_another_key_have_another_environment(lab: Lab) -> None:
    lab.run("tool", setup=with_setup())
    other = lab.run("tool", setup=with_setup("true", key="b2"))
    assert lab.report(other).exit_code == 127


@pytest.mark.every_isolation
@pytest.mark.on_slurm
def test_a_setup_that_fails_is_named_as_such_and_the_job_does_not_start(lab: Lab) -> None:
    attempt = lab.run("echo started", setup=with_setup("echo no such package; exit 3"))
    report = lab.report(attempt)
    assert (report.exit_code, report.message) == (3, "The setup failed with exit code 3: see its log.")
    assert (lab.output(attempt), lab.output(attempt, Stream.SETUP)) == (b"", b"no such package\n")


def test_what_a_failed_setup_left_is_cleared_before_the_next(lab: Lab) -> None:
    lab.run("true", setup=with_setup("touch $MOTLEY_ENV_DIR/half; exit 1"))
    attempt = lab.run("ls $MOTLEY_ENV_DIR; tool", setup=with_setup())
    assert lab.output(attempt) == b"bin\ntool\n"


def test_ranks_that_start_together_make_it_once(lab: Lab) -> None:
    attempt = lab.run("tool", ranks=2, setup=with_setup(f"sleep 0.5; {MAKE}"))
    logs = sorted(lab.output(attempt, Stream.SETUP, rank) for rank in range(2))
    assert logs == [b"The environment exists: it was made by attempt 1.\n", b"made\n"]
    assert [lab.output(attempt, rank=rank) for rank in range(2)] == [b"tool\n", b"tool\n"]


def test_an_attempt_that_is_stopped_in_its_setup_ends_and_another_makes_it(lab: Lab) -> None:
    attempt = lab.launch("echo started", setup=with_setup("echo begun; sleep 3600"))
    until(lambda: lab.output(attempt, Stream.SETUP) == b"begun\n")
    waiting = lab.launch("echo started", setup=with_setup("echo mine; sleep 3600"))
    lab.engine.stop(attempt, reason=StopReason.CANCEL, grace=GRACE)
    assert lab.end_of(attempt).exit_code == 143
    until(lambda: lab.output(waiting, Stream.SETUP) == b"mine\n")
    lab.engine.stop(waiting, reason=StopReason.CANCEL, grace=GRACE)
    lab.end_of(waiting)
    assert lab.output(attempt) == lab.output(waiting) == b""


def test_an_attempt_that_waits_for_a_setup_of_another_can_be_stopped(lab: Lab) -> None:
    attempt = lab.launch("true", setup=with_setup("echo begun; sleep 3600"))
    until(lambda: lab.output(attempt, Stream.SETUP) == b"begun\n")
    waiting = lab.launch("true", setup=with_setup())
    until(lambda: lab.report(waiting).phase is Phase.RUNNING)
    lab.engine.stop(waiting, reason=StopReason.CANCEL, grace=GRACE)
    assert lab.end_of(waiting).exit_code == 143
    lab.engine.stop(attempt, reason=StopReason.CANCEL, grace=GRACE)
    lab.end_of(attempt)


def test_an_environment_that_nobody_has_used_for_long_is_removed_unless_a_job_runs_in_it(lab: Lab) -> None:
    lab.run("tool", setup=with_setup(key="old"))
    lab.run("tool", setup=with_setup("touch $MOTLEY_ENV_DIR/half; exit 1", key="failed"))
    used = lab.launch("echo up; sleep 3600", setup=with_setup(key="used"))
    lab.wait_for_output(used, b"up")
    environments = lab.root / "environments"
    for key in ("old", "failed", "used"):
        os.utime(environments / key / "lock", (time.time() - 1e8,) * 2)
    lab.run("true", setup=with_setup(key="new"))
    found = sorted(path.relative_to(environments).as_posix() for path in environments.glob("*/*"))
    whole = [f"{key}/{name}" for key in ("new", "used") for name in ("complete", "env", "lock")]
    assert found == sorted(["failed/lock", "old/lock", *whole])
    assert lab.output(lab.run("tool", setup=with_setup(key="old"))) == b"tool\n"


def test_an_environment_that_a_job_has_entered_lately_is_kept(lab: Lab) -> None:
    lab.run("tool", setup=with_setup(key="old"))
    os.utime(lab.root / "environments" / "old" / "lock", (time.time() - 1e8,) * 2)
    lab.run("tool", setup=with_setup(key="old"))
    lab.run("true", setup=with_setup(key="new"))
    assert b"The environment exists" in lab.output(lab.run("tool", setup=with_setup(key="old")), Stream.SETUP)


def test_the_rest_of_an_interrupted_removal_is_removed(lab: Lab) -> None:
    rest = lab.root / "environments" / "old" / "removed-1"
    (rest / "half").mkdir(parents=True)
    lab.run("true", setup=with_setup())
    assert not rest.exists()


def test_an_environment_that_cannot_be_removed_does_not_fail_the_setup_of_another(lab: Lab) -> None:
    broken = lab.root / "environments" / "broken"
    (broken / "lock").mkdir(parents=True)
    (broken / "complete").touch()
    for path in broken.iterdir():
        os.utime(path, (time.time() - 1e8,) * 2)
    assert lab.output(lab.run("tool", setup=with_setup())) == b"tool\n"


PYTHON = shlex.quote(sys.executable)
DEEP = "[(os.mkdir('deep'), os.chdir('deep')) for _ in range(1500)]"
READ_ONLY = "os.makedirs('package/lib'); os.chmod('package/lib', 0); os.chmod('package', 0o555)"


@pytest.mark.parametrize("left", [DEEP, READ_ONLY], ids=["deep", "read_only"])
def test_whatever_a_failed_setup_left_is_cleared(lab: Lab, left: str) -> None:
    failed = lab.run("true", setup=with_setup(f'cd $MOTLEY_ENV_DIR; {PYTHON} -c "import os; {left}" && exit 9'))
    attempt = lab.run("ls $MOTLEY_ENV_DIR; ls $MOTLEY_ENV_DIR/..", setup=with_setup())
    assert lab.report(failed).exit_code == 9
    assert lab.output(attempt) == b"bin\ncomplete\nenv\nlock\n"


@pytest.mark.on_slurm
def test_the_log_of_a_setup_is_limited(lab: Lab) -> None:
    attempt = lab.run("echo on", setup=with_setup("head -c 1000000 /dev/zero"), log_limit_bytes=1000)
    mark = b"\n... truncated by Motley at 1000 bytes\n"
    assert (lab.output(attempt), lab.output(attempt, Stream.SETUP)) == (b"on\n", b"\0" * 1000 + mark)


@pytest.mark.on_slurm
def test_no_process_of_a_setup_lives_on(lab: Lab) -> None:
    pid = "$MOTLEY_ENV_DIR/pid"
    daemon = f"setsid sh -c 'echo $$ > {pid}; exec sleep 3600' & until [ -s {pid} ]; do sleep 0.05; done"
    attempt = lab.run(f"cat {pid} && ! kill -0 $(cat {pid})", setup=with_setup(daemon))
    assert lab.output(attempt)
    assert lab.report(attempt).exit_code == 0


def test_on_nfs_of_two_that_come_together_one_makes_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock of NFS is a range lock: one that cannot be made exclusive stays a shared one."""
    one, other = Environment(str(place)), Environment(str(place))
    entries: list[Entry] = []

    def flock_on_nfs(descriptor: int, operation: int) -> None:
        kind = {LOCK_SH: F_RDLCK, LOCK_EX: F_WRLCK, LOCK_UN: F_UNLCK}[operation & ~LOCK_NB]
        fcntl(descriptor, F_OFD_SETLK, struct.pack("hh4xqqi4x", kind, os.SEEK_SET, 0, 0, 0))
        if not entries:
            entries.append(Entry.BUSY)
            entries[0] = other.enter()

    monkeypatch.setattr("engines.supervision.environment_setup.flock", flock_on_nfs)
    entries += [one.enter(), other.enter(), one.enter()]
    assert entries == [Entry.BUSY, Entry.EMPTY, Entry.BUSY, Entry.EMPTY]


@pytest.mark.parametrize("written", ["", "nan", "inf", "-1", "1e300", "soon"])
def test_a_duration_that_cannot_be_is_not_known(tmp_path: Path, written: str) -> None:
    folder = AttemptFolder(tmp_path)
    folder.setup_time(0).write_text(written)
    write_json(folder.started, {"at": "2026-11-29T12:00:00+00:00", "code_s": written})
    assert folder.start_times() == {"code_s": None, "setup_s": None}
