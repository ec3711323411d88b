"""Code from a folder on a laptop, by the command and the Python client."""

import hashlib
import re
from pathlib import Path

from jobs_app.models import CodeArchive, Job
from motley_client import Client
from tests.live_service import Live
from tests.motley_command import Motley


def test_submit_uploads_a_folder_once_and_the_job_runs_it(service: Live, motley: Motley, tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("echo trained")
    options = ("--gpus", "1", "--code", str(tmp_path), "--", "sh", "train.sh")
    first = motley("submit", "--name", "a", *options)
    assert first.exit_code == 0, first.output
    assert "uploaded." in first.output
    assert re.search(r"1 file, [\d.]+ KiB packed", first.output)
    assert "uploaded before" in motley("submit", "--name", "b", *options).output
    for job in service.jobs:
        service.lab.until_state(job, Job.State.SUCCEEDED)
        assert service.lab.output(job) == "trained\n"


def test_a_folder_in_a_file_is_relative_to_the_file(service: Live, motley: Motley, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.sh").write_text("echo trained")
    (tmp_path / "job.yaml").write_text("{name: a, command: sh train.sh, gpus: 1, code: src}")
    assert motley("plan", str(tmp_path / "job.yaml")).exit_code == 0
    assert not CodeArchive.objects.exists()
    assert motley("submit", str(tmp_path / "job.yaml")).exit_code == 0
    assert service.jobs[0].code is not None


def test_a_clone_may_run_other_code(service: Live, motley: Motley, tmp_path: Path) -> None:
    service.add("a")
    (tmp_path / "train.sh").write_text("echo better")
    made = motley("clone", "a", "--code", str(tmp_path))
    assert made.exit_code == 0, made.output
    assert service.jobs[0].code is not None


def test_a_script_uploads_and_looks_at_code(service: Live, client: Client, tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("echo trained")
    digest = client.upload_code(tmp_path)
    assert [one["digest"] for one in client.codes("vision")] == [digest]
    assert client.code("vision", digest)["files"] == 2
    assert hashlib.sha256(client.download_code("vision", digest)).hexdigest() == digest
    assert client.submit({"name": "a", "command": "true", "gpus": 1, "code": digest})["spec"]["code"] == digest
