"""`make test-deep` by itself, in a folder without results of earlier runs: the recipe is real, its programs are not."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deployment import ROOT

PROGRAM = """#!/bin/sh
# Writes what --out names, as SlipCover does at the end of a run.
echo "ran: $*" >&2
while [ $# -gt 0 ]; do
    [ "$1" != --out ] || : > "$2" || exit 1
    shift
done
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for name in ("bootstrap.sh", ".venv/bin/python"):
        (tmp_path / name).write_text(PROGRAM)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def run_alone(checkout: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"]}  # not the flags of the make that runs these tests
    return subprocess.run(
        ["make", "test-deep"], cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )


def test_the_deep_tests_run_alone_and_say_that_no_floor_holds(checkout: Path) -> None:
    done = run_alone(checkout)
    assert done.returncode == 0, done.stderr
    assert (checkout / ".cache" / "coverage" / "postgresql-deep.json").exists()
    assert "--merge" not in done.stderr
    assert "which make test-all measures first" in done.stdout


def test_after_make_test_the_floor_holds_over_both(checkout: Path) -> None:
    folder = checkout / ".cache" / "coverage"
    folder.mkdir(parents=True)
    for name in ("sqlite.json", "postgresql.json"):
        (folder / name).touch()
    done = run_alone(checkout)
    assert done.returncode == 0, done.stderr
    assert "--merge sqlite.json postgresql.json sqlite-deep.json postgresql-deep.json" in done.stderr
