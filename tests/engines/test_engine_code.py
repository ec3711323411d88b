"""Code that comes with a launch: unpacked into the job's own working folder before its first attempt."""

import os
import subprocess
import sys
import tarfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest

from engines.attempt_files import AttemptFolder, CodeFile, LaunchFile, StopFile, write_json
from engines.protocol import EngineError
from engines.supervision.unpack import CodeNotUnpacked, unpack_code
from tests.engines.engine_lab import Lab

NOBODY = 65534


def archive(folder: Path, files: dict[str, str]) -> Path:
    path = folder / "0123abcd.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text), 0o444
            tar.addfile(member, BytesIO(text.encode()))
    return path


@pytest.mark.on_slurm
def test_a_job_starts_in_a_folder_with_its_code(lab: Lab, tmp_path: Path) -> None:
    code = archive(tmp_path, {"train.sh": "echo trained with $(cat conf/a.txt)", "conf/a.txt": "a"})
    attempt = lab.run("sh train.sh && echo more > result && ls -1d conf result", code=code, ranks=2)
    assert lab.output(attempt) == b"trained with a\nconf\nresult\n"
    assert lab.output(attempt, rank=1).startswith(b"trained with a\n")


def test_a_later_attempt_finds_the_folder_as_the_one_before_left_it(lab: Lab, tmp_path: Path) -> None:
    code = archive(tmp_path, {"a.txt": "as packed"})
    first = lab.order("echo result > result; rm -f a.txt", code=code)
    lab.engine.launch(first)
    lab.end_of(first.attempt)
    second = replace(lab.order("cat result; ls -1"), job=first.job, code=code)
    lab.engine.launch(second)
    lab.end_of(second.attempt)
    assert lab.output(second.attempt) == b"result\nresult\n"


def test_each_job_has_its_own_copy(lab: Lab, tmp_path: Path) -> None:
    code = archive(tmp_path, {"a.txt": "as packed"})
    lab.run("chmod +w a.txt; echo changed > a.txt", code=code)
    assert lab.output(lab.run("cat a.txt", code=code)) == b"as packed"


def test_an_archive_that_tar_does_not_take_fails_the_job_and_not_the_node(lab: Lab, tmp_path: Path) -> None:
    code = tmp_path / "0123abcd.tar.gz"
    code.write_bytes(b"not an archive")
    attempt = lab.launch("echo never", code=code)
    report = lab.end_of(attempt)
    assert (report.exit_code, report.reason) == (65, None)
    assert "could not be unpacked" in report.message
    assert "gzip" in report.message
    assert not lab.folder(attempt).code.exists()


def test_names_that_conflict_fail_the_job(lab: Lab, tmp_path: Path) -> None:
    report = lab.end_of(lab.launch("echo never", code=archive(tmp_path, {"a": "file", "a/b": "in it"})))
    assert "a/b" in report.message


def test_a_folder_that_cannot_be_written_is_the_fault_of_the_node(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    code = archive(tmp_path, {"a.txt": "a"})
    files = CodeFile(archive=str(code), folder=str(locked), done=str(tmp_path / "unpacked"))
    with pytest.raises(CodeNotUnpacked, match="Permission denied") as raised:
        unpack_code(launch_with(files))
    assert raised.value.node_failed


def test_a_folder_that_the_archive_itself_locks_is_the_fault_of_the_job(tmp_path: Path) -> None:
    """Else one archive takes a server after the other out of service. The member between makes tar lock the folder."""
    packed = tmp_path / "0123abcd.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        for name, kind, mode in (("a", tarfile.DIRTYPE, 0o555), ("b", tarfile.REGTYPE, 0o444)):
            member = tarfile.TarInfo(name)
            member.type, member.mode = kind, mode
            tar.addfile(member)
        tar.addfile(tarfile.TarInfo("a/c"))
    folder = tmp_path / "code"
    folder.mkdir(mode=0o755)
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    files = CodeFile(archive=str(packed), folder=str(folder), done=str(tmp_path / "unpacked"))
    with pytest.raises(CodeNotUnpacked, match="Permission denied") as raised:
        unpack_code(launch_with(files))
    assert not raised.value.node_failed


def launch_with(code: CodeFile) -> LaunchFile:
    user = [NOBODY, NOBODY] if os.geteuid() == 0 else None
    return LaunchFile(ranks=[], user=user, isolation="", mark="", log_limit_bytes=0, code=code)


def test_the_archive_goes_if_the_attempt_is_stopped_before(tmp_path: Path) -> None:
    folder = AttemptFolder(tmp_path)
    folder.code.write_bytes(b"")
    files = CodeFile(archive=str(folder.code), folder=str(tmp_path), done=str(tmp_path / "unpacked"))
    write_json(folder.launch, launch_with(files))
    write_json(folder.stop, StopFile(reason="cancel", grace_s=0.0))
    supervised_by_another_process(folder)
    assert folder.exit.exists()
    assert not folder.code.exists()


def supervised_by_another_process(folder: AttemptFolder) -> None:
    """Run the attempt under a supervisor of its own: this process must not become a child subreaper."""
    with Path(os.devnull).open("rb") as lock:
        command = [sys.executable, "-m", "engines.supervision.supervisor", folder.path, str(lock.fileno())]
        subprocess.run(command, pass_fds=[lock.fileno()], check=True)


def test_a_missing_archive_is_refused_with_the_folder_that_has_none(lab: Lab, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="is missing: check the folder MOTLEY_CODE_ROOT"):
        lab.launch("true", code=tmp_path / "0123abcd.tar.gz")


def test_nothing_is_unpacked_outside_of_the_folder(lab: Lab, tmp_path: Path) -> None:
    code = archive(tmp_path, {"../escaped.txt": "out", "inside.txt": "in"})
    report = lab.end_of(lab.launch("echo never", code=code))
    assert "'..'" in report.message
    assert not list(lab.root.glob("jobs/*/escaped.txt"))
