"""Recipes of tests in a folder without results of earlier runs: the recipes are real, their programs are not."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deployment import ROOT

PROGRAM = """#!/bin/sh
# Writes what --out names, as SlipCover does at the end of a run; with BELOW, too few lines are covered.
echo "ran: $*" >&2
case "$*" in *--fail-under*) [ -z "$BELOW" ] || { echo covers 12; exit 2; } ;; esac
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


def make(checkout: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Without the flags of the make that runs these tests."""
    environment["PATH"] = os.environ["PATH"]
    return subprocess.run(["make", *words], cwd=checkout, env=environment, capture_output=True, text=True, check=False)


def test_the_deep_tests_run_on_both_databases_and_are_not_measured(checkout: Path) -> None:
    done = make(checkout, "test-deep")
    runs = [line for line in done.stderr.splitlines() if "--tier deep" in line]
    assert done.returncode == 0, done.stderr
    assert [("tests.private_servers" in run, "slipcover" in run) for run in runs] == [(False, False), (True, False)]


@pytest.mark.parametrize("words", [["test", "MEASURE=1"], ["test-all"]], ids=" ".join)
def test_a_floor_holds_over_both_databases(checkout: Path, words: list[str]) -> None:
    done = make(checkout, *words)
    assert done.returncode == 0, done.stderr
    assert "--merge sqlite.json postgresql.json" in done.stderr


def test_below_the_floor_it_fails_and_says_where_to_look(checkout: Path) -> None:
    done = make(checkout, "test", "MEASURE=1", BELOW="1")
    assert done.returncode != 0
    assert "covers 12\nfewer than 94 % of the lines are covered: see .cache/coverage/report.txt" in done.stdout


def test_without_it_nothing_is_measured(checkout: Path) -> None:
    done = make(checkout, "test")
    assert (done.returncode, "slipcover" in done.stderr) == (0, False)
