"""Files of a job's own folder: what is listed and opened, and that nothing leads out of it."""

import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from engines.job_files import MOST_LISTED, list_folder, open_file
from engines.protocol import NoSuchFile


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("of somebody else")
    folder = tmp_path / "job"
    (folder / "work" / "out").mkdir(parents=True)
    (folder / "checkpoints").mkdir()
    (folder / "unpacked").touch()
    (folder / "work" / "out" / "model.bin").write_bytes(b"weights")
    return folder


def names(job: Path, path: str) -> list[str]:
    return [one.name for one in list_folder(job, path)]


def content(job: Path, path: str) -> bytes:
    opened = open_file(job, path)
    with os.fdopen(opened.descriptor, "rb") as file:
        return file.read(opened.size)


def test_folders_come_first_and_only_those_of_the_job_are_its_roots(job: Path) -> None:
    (job / "work" / "a.txt").write_text("a")
    assert names(job, "") == ["work", "checkpoints"]
    assert names(job, "work") == ["out", "a.txt"]
    assert [(one.is_file, one.size) for one in list_folder(job, "work/out")] == [(True, 7)]
    assert content(job, "work/out/model.bin") == b"weights"


@pytest.mark.parametrize(
    "path", ["work/../../secret", "../secret", "/etc/passwd", "unpacked", "work", "work/nothing", "work/out", "work/\0"]
)
def test_a_path_that_is_no_file_of_the_job_is_refused(job: Path, path: str) -> None:
    with pytest.raises(NoSuchFile):
        open_file(job, path)


def test_no_link_is_followed(job: Path) -> None:
    (job / "work" / "link").symlink_to(job.parent / "secret")
    (job / "work" / "up").symlink_to(job.parent)
    assert [(one.name, one.is_file, one.is_folder) for one in list_folder(job, "work") if one.name == "link"] == [
        ("link", False, False)
    ]
    for path in ("work/link", "work/up/secret"):
        with pytest.raises(NoSuchFile):
            open_file(job, path)
    with pytest.raises(NoSuchFile):
        list_folder(job, "work/up")


def test_a_root_that_is_a_link_is_not_followed(job: Path) -> None:
    (job / "checkpoints").rmdir()
    (job / "checkpoints").symlink_to(job.parent)
    with pytest.raises(NoSuchFile):
        open_file(job, "checkpoints/secret")


def test_a_pipe_is_not_opened_and_does_not_block(job: Path) -> None:
    os.mkfifo(job / "work" / "pipe")
    with pytest.raises(NoSuchFile):
        open_file(job, "work/pipe")


@pytest.mark.skipif(os.getuid() != 0, reason="gives a file to another account")
def test_a_hard_link_to_a_file_of_another_account_is_refused(job: Path) -> None:
    os.link(job.parent / "secret", job / "work" / "linked")
    os.chown(job / "work", 12_345, 12_345)
    with pytest.raises(NoSuchFile):
        open_file(job, "work/linked")


def test_a_name_that_is_no_text_is_listed(job: Path) -> None:
    (job / "work" / os.fsdecode(b"caf\xe9")).touch()
    assert "caf\ufffd" in names(job, "work")


@pytest.mark.parametrize("at_s", [10**14, -(10**14)])
def test_a_file_with_a_time_that_is_no_date_hides_no_others(job: Path, at_s: int) -> None:
    """Some file systems keep whatever time a job gives to a file."""
    with TemporaryDirectory(dir="/dev/shm") as folder:
        shutil.copytree(job, there := Path(folder) / "job")
        os.utime(there / "work" / "out" / "model.bin", (at_s, at_s))
        (found,) = list_folder(there, "work/out")
    assert found.modified_at.year in (1970, 9999)


def test_a_long_folder_is_cut(job: Path) -> None:
    for n in range(MOST_LISTED + 3):
        (job / "checkpoints" / f"{n}").touch()
    assert len(list_folder(job, "checkpoints")) == MOST_LISTED


def test_no_descriptor_is_left_open(job: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in ("work/out/nothing", "work/nothing/x", "work/out"):
        with pytest.raises(NoSuchFile):
            open_file(job, path)
    list_folder(job, "work")
    assert len(list(Path("/proc/self/fd").iterdir())) == before
