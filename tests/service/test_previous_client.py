"""The client of before the last upgrade works against the service of today, command by command.

There are no releases yet: it is taken as it was at `COMMIT`, from when REST had the same version (`/api/v1`).
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.deployment import ROOT
from tests.service.running_service import Service

COMMIT = "c41120245d13bd950cb33b30e370a68761c3ad01"
"""23 November 2026: "Engines and rounds are two loops, each fenced"."""


@pytest.fixture(scope="session")
def client_of_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("before")
    archive = subprocess.run(["git", "archive", COMMIT, "client"], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"this clone does not have the commit {COMMIT[:7]} with the client of before")
    subprocess.run(["tar", "-x"], cwd=folder, input=archive.stdout, check=True)
    return folder / "client"


class MotleyOfBefore:
    """Its command, as a process of its own."""

    def __init__(self, client: Path, service: Service, home: Path) -> None:
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(client),
            "HOME": str(home),
            "MOTLEY_URL": service.url,
            "MOTLEY_TOKEN": service.token,
        }
        self.home = home

    def __call__(self, *arguments: str, codes: Sequence[int] = (0,)) -> str:
        program = [sys.executable, "-c", "from motley_client.cli import app; app()", *arguments]
        done = subprocess.run(
            program, env=self.environment, cwd=self.home, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode in codes, (arguments, done.stdout, done.stderr)
        return done.stdout

    def where(self) -> str:
        """The file that runs."""
        program = [sys.executable, "-c", "import motley_client; print(motley_client.__file__)"]
        return subprocess.run(program, env=self.environment, capture_output=True, text=True, check=True).stdout

    def reads(self, *arguments: str) -> str:
        """What it prints, which is something."""
        shown = self(*arguments)
        assert shown, arguments
        return shown


@pytest.fixture
def motley(four_gpus: Service, client_of_before: Path, tmp_path: Path) -> MotleyOfBefore:
    return MotleyOfBefore(client_of_before, four_gpus, tmp_path)


def test_the_client_of_before_submits_follows_and_ends_jobs(motley: MotleyOfBefore, client_of_before: Path) -> None:
    assert str(client_of_before) in motley.where()
    first = _id(
        motley("submit", "--name", "first", "--team", "vision", "--gpus", "1", "-o", "json", "--", "echo", "said")
    )
    motley("wait", first)
    assert motley("logs", first) == "said\n"
    assert motley("logs", "-f", first) == "said\n"
    again = _id(motley("clone", first, "-o", "json", "--name", "again"))
    motley("wait", again)
    long = _id(
        motley("submit", "--name", "long", "--team", "vision", "--gpus", "1", "-o", "json", "--", "sleep", "1000")
    )
    motley("hold", long)
    motley("release", long)
    motley("change", long, "--weight", "0.5")
    motley("cancel", long)
    motley("wait", long, codes=(1, 143))  # whether it had begun again or not
    fails = _id(motley("submit", "--name", "fails", "--team", "vision", "--gpus", "1", "-o", "json", "--", "false"))
    motley("wait", fails, codes=(1,))


def test_the_client_of_before_shows_everything(motley: MotleyOfBefore) -> None:
    (motley.home / "code").mkdir()
    (motley.home / "code" / "train.py").write_text("print('from code')")
    job = _id(
        motley(
            "submit",
            "--name",
            "coded",
            "--team",
            "vision",
            "--gpus",
            "1",
            "-o",
            "json",
            "--code",
            "code",
            "--tag",
            "a=b",
            "--",
            "python3",
            "train.py",
        )
    )
    motley("wait", job)
    assert "from code" in motley("logs", job)
    assert "a100" in motley.reads("plan", "--name", "planned", "--team", "vision", "--gpus", "1", "--", "true")
    for command in ("show", "explain", "events", "attempts"):
        motley.reads(command, job)
        json.loads(motley.reads(command, job, "-o", "json"))
    for words in (
        ["ps", "--all"],
        ["nodes"],
        ["types"],
        ["rates"],
        ["share"],
        ["rounds"],
        ["me"],
        ["policy", "list"],
        ["policy", "show"],
    ):
        motley.reads(*words)
    motley("token", "create", "of-before")
    assert "of-before" in motley.reads("token", "list")
    assert motley("show", "00000000-0000-7000-8000-000000000000", codes=(4,)) == ""


def _id(shown: str) -> str:
    answer = json.loads(shown)
    return str((answer[0] if isinstance(answer, list) else answer)["id"])
