"""Packing of a folder of code: which files, the same archive for the same files, and what is refused."""

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from motley_client.code import SOURCE, code_files, packed, source_of
from motley_client.spec import SpecError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path / "code", {"train.py": "print('trained')\n", "conf/a.yaml": "a: 1\n"})


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=ada", "-c", "user.email=ada@example.org"]
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


def members(folder: Path) -> dict[str, tarfile.TarInfo]:
    with packed(folder) as code, tarfile.open(fileobj=code.file, mode="r:gz") as archive:
        return {member.name: member for member in archive}


def test_all_files_of_a_plain_folder_are_packed(folder: Path) -> None:
    assert code_files(folder) == ["conf/a.yaml", "train.py"]


def test_ignored_files_stay_behind_and_deeper_patterns_win(folder: Path) -> None:
    written(
        folder,
        {
            ".gitignore": "*.log\n/data/\n",
            "run.log": "",
            "data/big.bin": "",
            "sub/data/small.bin": "",
            "sub/.gitignore": "!kept.log\n",
            "sub/kept.log": "",
            "sub/other.log": "",
            ".motleyignore": "notes/\n",
            "notes/a.txt": "",
            "__pycache__/a.pyc": "",
        },
    )
    assert code_files(folder) == [
        *(".gitignore", ".motleyignore", "conf/a.yaml", "sub/.gitignore", "sub/data/small.bin", "sub/kept.log"),
        "train.py",
    ]


def test_a_file_that_git_tracks_is_packed_though_it_is_ignored(folder: Path) -> None:
    written(folder, {".gitignore": "*.bin\n", "weights.bin": "", "other.bin": ""})
    git(folder, "init")
    git(folder, "add", "-f", "weights.bin")
    assert "weights.bin" in code_files(folder)
    assert "other.bin" not in code_files(folder)
    assert not [path for path in code_files(folder) if path.startswith(".git/")]


def test_the_ignore_file_of_the_repository_holds_in_a_folder_of_it(folder: Path) -> None:
    written(folder, {".gitignore": "*.log\n", "conf/run.log": ""})
    git(folder, "init")
    assert code_files(folder / "conf") == ["a.yaml"]


def test_what_git_would_not_add_by_its_own_excludes_stays_behind(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(folder, {"secrets.txt": "", "notes.swp": "", "__pycache__/a.pyc": "", "new/b.py": ""})
    (tmp_path / "excludes").write_text("*.swp\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    (tmp_path / "gitconfig").write_text(f"[core]\n\texcludesFile = {tmp_path / 'excludes'}\n")
    git(folder, "init")
    (folder / ".git" / "info" / "exclude").write_text("secrets.txt\n")
    assert code_files(folder) == ["conf/a.yaml", "new/b.py", "train.py"]


def test_a_repository_within_another_is_packed_by_its_own_excludes(folder: Path) -> None:
    git(folder, "init")
    inner = written(folder / "lib", {"tracked.py": "", "other.py": "", "left.log": "", ".gitignore": "*.log\n"})
    git(inner, "init")
    git(inner, "add", "tracked.py")
    git(inner, "commit", "-m", "first")
    files = ["conf/a.yaml", "lib/.gitignore", "lib/other.py", "lib/tracked.py", "train.py"]
    assert code_files(folder) == files
    git(folder, "add", "lib")
    assert code_files(folder) == files


def test_the_same_files_give_the_same_archive_whatever_their_times_and_modes(folder: Path, tmp_path: Path) -> None:
    other = written(tmp_path / "other", {"conf/a.yaml": "a: 1\n", "train.py": "print('trained')\n"})
    os.utime(other / "train.py", (0, 0))
    (other / "train.py").chmod(0o600)
    with packed(folder) as one, packed(other) as two:
        assert one.digest == two.digest
    (other / "train.py").write_text("print('else')\n")
    with packed(folder) as one, packed(other) as two:
        assert one.digest != two.digest


def test_files_are_read_only_and_programs_stay_executable(folder: Path) -> None:
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    found = members(folder)
    assert {name: found[name].mode for name in ("run.sh", "train.py")} == {"run.sh": 0o555, "train.py": 0o444}


def test_the_archive_says_which_commit_it_is_and_what_was_changed(folder: Path) -> None:
    git(folder, "init", "-b", "tuning")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "first")
    (folder / "train.py").write_text("print('better')\n")
    source = source_of(folder)
    assert len(source["commit"]) == 40
    assert source["branch"] == "tuning"
    assert "+print('better')" in source["diff"]
    assert SOURCE in members(folder)


def test_motleyignore_leaves_out_what_git_tracks_and_its_changes(folder: Path) -> None:
    left_out = {"data/big.txt": "left out\n", "notes.txt": "left out\n", "sub/[a].txt": "left out\n"}
    written(folder, left_out | {"sub/kept.txt": "kept\n", ".gitignore": "*.txt\n"})
    git(folder, "init")
    git(folder, "add", "-f", ".")
    git(folder, "commit", "-m", "first")
    written(folder, {".motleyignore": "data/\nnotes.txt\n", "sub/.motleyignore": "\\[a].txt\n"})
    written(folder, {**dict.fromkeys(left_out, "left out, too\n"), "sub/kept.txt": "kept, too\n"})
    (folder / "notes.txt").unlink()
    assert not {*code_files(folder)} & {*left_out}
    assert "sub/kept.txt" in code_files(folder)
    diff = source_of(folder)["diff"]
    assert "+kept, too" in diff
    assert "left out" not in diff
    assert "left out" not in source_of(folder / "sub")["diff"]


def test_motleyignore_above_the_folder_holds_for_what_git_tracks(folder: Path) -> None:
    written(folder, {".motleyignore": "*.bin\n", "conf/weights.bin": ""})
    git(folder, "init")
    git(folder, "add", "-f", ".")
    assert code_files(folder / "conf") == ["a.yaml"]


def test_the_source_that_an_archive_brought_is_not_packed_again(folder: Path) -> None:
    written(folder, {SOURCE: "{}"})
    with packed(folder) as code, tarfile.open(fileobj=code.file, mode="r:gz") as archive:
        assert archive.getnames().count(SOURCE) == 1


def test_a_link_inside_is_kept_and_one_that_leads_out_is_refused_by_name(folder: Path, tmp_path: Path) -> None:
    (folder / "again.py").symlink_to("train.py")
    assert members(folder)["again.py"].linkname == "train.py"
    (folder / "data").symlink_to(tmp_path)
    with pytest.raises(SpecError, match="the link data leads to"), packed(folder):
        pass


def test_too_large_a_folder_is_refused_with_its_largest_files(folder: Path) -> None:
    with (folder / "weights.bin").open("wb") as file:
        file.truncate(600 * 1024 * 1024)
    with pytest.raises(SpecError, match=r"600\.0 MiB  weights.bin"), packed(folder):
        pass


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no such folder"), packed(tmp_path / "missing"):
        pass
