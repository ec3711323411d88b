import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from engines.supervision.isolation import Isolation, best_isolation
from tests.engines.engine_lab import Lab, SlurmLab

WANTED = os.environ.get("MOTLEY_TEST_SLURM", "some")
"""Tests of the contract of engines that run on Slurm, too: `some`, those marked `on_slurm`; `all`; or `none`."""
OTHERS = os.environ.get("MOTLEY_TEST_ISOLATION", Isolation.SUBREAPER).split()
"""Kinds of isolation that tests of the contract try beside the best of this machine."""

MARKERS = (
    "thorough: left out of make test, and run by make test-all",
    "every_isolation: of the contract of engines, run under every isolation, and as an ordinary user, in make test",
    "on_slurm: of the contract of engines, also run on Slurm; the others of it in make test-slurm",
    "local_only: about the engine of one machine",
)


FOUND_ISOLATION = cache(best_isolation)
"""It starts a process to find out; every test of the contract asks."""


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers here, for this folder is also run without the project's settings, as another user."""
    for line in MARKERS:
        config.addinivalue_line("markers", line)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests of the contract, in modules test_engine_*, run over every engine."""
    chosen = any("lab" in str(mark.args[0]) for mark in metafunc.definition.iter_markers("parametrize"))
    if "lab" in metafunc.fixturenames and ".test_engine_" in metafunc.module.__name__ and not chosen:
        marked = metafunc.definition.get_closest_marker("on_slurm") is not None
        local_only = metafunc.definition.get_closest_marker("local_only") is not None
        best = FOUND_ISOLATION()
        isolations = {best: None, **dict.fromkeys(map(Isolation, OTHERS))}
        thorough = pytest.mark.thorough  # declared by now
        everywhere = metafunc.definition.get_closest_marker("every_isolation") is not None
        kinds = [
            pytest.param(kind, id=str(kind), marks=() if everywhere or kind is best else thorough)
            for kind in isolations
        ]
        if (marked and WANTED == "some") or (WANTED == "all" and not local_only):
            marks = [pytest.mark.xdist_group("slurm"), *([] if everywhere else [thorough])]
            kinds.append(pytest.param("slurm", id="slurm", marks=marks))
        metafunc.parametrize("lab", kinds, indirect=True)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that other users can reach: pytest's own lie below a private one."""
    path = Path(tempfile.mkdtemp(prefix="motley-engine-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def lab(place: Path, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """An engine in its own folder, and the proof that no test leaves a process behind."""
    kind = getattr(request, "param", "slurm")
    if kind == "slurm":
        lab: Lab = SlurmLab(place, request.getfixturevalue("slurm_cluster"))
    else:
        lab = Lab(place, isolation=kind)
    yield lab
    lab.stop_all()
