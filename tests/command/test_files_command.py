"""The command `motley files`: lists of folders, downloads, checkpoints, and what is refused."""

import json
from pathlib import Path

import pytest

from jobs_app.models import Job
from tests.live_service import Live
from tests.motley_command import Motley


def test_files_of_a_job_are_listed_and_downloaded(service: Live, motley: Motley, tmp_path: Path) -> None:
    command = "mkdir out; printf 0123456789 > out/model.pt; ln -s /etc/passwd link; touch ../checkpoints/checkpoint-500"
    job = service.add("a", command=command)
    service.lab.until_state(job, Job.State.SUCCEEDED)
    assert "work/" in motley("files", "a").stdout
    listed = motley("files", "a", "work").stdout
    assert ("out/" in listed, "link or device, not followed" in listed) == (True, True)
    assert motley("files", "a", "work/out", "-o", "name").stdout == "work/out/model.pt\n"
    target = tmp_path / "model.pt"
    assert motley("files", "a", "work/out/model.pt", "--to", str(target)).exit_code == 0
    assert target.read_bytes() == b"0123456789"
    assert motley("files", "a", "work/out/model.pt", "--to", "-").stdout_bytes == b"0123456789"
    missing = motley("files", "a", "work/link", "--to", str(tmp_path / "link"))
    assert (missing.exit_code, "There is no such file" in missing.stderr) == (4, True)
    assert [word for word in motley("checkpoints", "a").stdout.split() if "500" in word] == ["checkpoint-500", "500"]
    cloned = motley("clone", "a", "--checkpoint", "checkpoint-500", "--name", "b", "-o", "json")
    assert json.loads(cloned.stdout)["continues_from"] == "checkpoint-500"
    assert f"b ({json.loads(cloned.stdout)['id']}) began with checkpoint-500" in motley("checkpoints", "a").stdout
    assert sorted(at.name for at in tmp_path.iterdir() if at.name != "config") == ["model.pt"]


def test_a_file_that_is_there_is_not_replaced_unless_it_is_named(
    service: Live, motley: Motley, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = service.add("a", command="echo new > result")
    service.lab.until_state(job, Job.State.SUCCEEDED)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "result").write_text("mine")
    refused = motley("files", "a", "work/result")
    assert (refused.exit_code, "result exists already" in refused.stderr) == (2, True)
    assert (tmp_path / "result").read_text() == "mine"
    assert motley("files", "a", "work/result", "--to", "result").exit_code == 0
    assert (tmp_path / "result").read_text() == "new\n"
