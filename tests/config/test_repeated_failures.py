"""What failed in .ci/run is repeated alone: what passes then is told as flaky, what fails again fails the run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deployment import ROOT
from tests.repeat_failed import failed_tests

TESTS = """
import pathlib
import pytest

@pytest.mark.xdist_group("together")
@pytest.mark.parametrize("who", ["a@b", "c"])
def test_fails_the_first_time(who):
    seen = pathlib.Path(who)
    first, _ = not seen.exists(), seen.touch()
    assert not first

@pytest.mark.parametrize("number", range({broken}))
def test_fails_each_time(number):
    assert False
"""


def after_a_run(folder: Path, *, broken: int) -> subprocess.CompletedProcess[str]:
    """What the repetition says after pytest has run these tests on two workers, as the Makefile does."""
    (folder / "test_them.py").write_text(TESTS.format(broken=broken))
    (folder / "pytest.ini").write_text("[pytest]\naddopts =\n")
    measured = {name for name in os.environ if name.startswith("SLIPCOVER_")}  # `make test` measures this run, not that
    environment = {name: value for name, value in os.environ.items() if name not in measured} | {
        "PYTHONPATH": str(ROOT),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # each process would import all plugins of the suite for seconds
        "PYTEST_ADDOPTS": "-p xdist",
    }
    run = ["pytest", "--cache-clear", "-q", "-n2", "--dist", "loadgroup"]
    first = subprocess.run([sys.executable, "-m", *run], cwd=folder, env=environment, check=False, capture_output=True)
    assert first.returncode == 1, first.stdout
    again = [sys.executable, "-m", "tests.repeat_failed"]
    return subprocess.run(again, cwd=folder, env=environment, check=False, capture_output=True, text=True)


def test_one_that_passes_alone_is_told_as_flaky(tmp_path: Path) -> None:
    repeated = after_a_run(tmp_path, broken=0)
    assert repeated.returncode == 0, repeated.stdout
    assert "FLAKY test_them.py::test_fails_the_first_time[a@b]: it failed and then passed" in repeated.stdout


def test_one_that_fails_again_fails_the_run(tmp_path: Path) -> None:
    repeated = after_a_run(tmp_path, broken=1)
    assert repeated.returncode == 1
    assert "FLAKY" not in repeated.stdout


def test_many_failures_are_not_repeated(tmp_path: Path) -> None:
    repeated = after_a_run(tmp_path, broken=2)
    assert repeated.returncode == 1
    assert "too many to be repeated" in repeated.stdout
    assert "test session starts" not in repeated.stdout


@pytest.mark.parametrize(
    ("cached", "named"),
    [
        ("{}", []),
        ('{"x.py::test_y[a@b]@slurm": true, "x.py::test_y": true}', ["x.py::test_y", "x.py::test_y[a@b]"]),
        ('{"x.py::test_y@slurm": true, "x.py": true}', ["x.py", "x.py::test_y"]),
    ],
)
def test_the_group_of_xdist_is_no_part_of_a_name(cached: str, named: list[str]) -> None:
    assert failed_tests(cached) == named
