import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_lab import Lab, running, until

from engines.isolation import Isolation, best_isolation
from engines.processes import kill


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that other users can reach: pytest's own lie below a private one."""
    path = Path(tempfile.mkdtemp(prefix="motley-engine-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(params=[best_isolation(), Isolation.SUBREAPER], ids=str)
def lab(place: Path, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """An engine in its own folder, and the proof that no test leaves a process behind."""
    lab = Lab(place, isolation=request.param)
    yield lab
    stop_all(lab)


def stop_all(lab: Lab) -> None:
    kill(supervisors_below(lab.root))
    until(lambda: not lab.left_over() and not supervisors_below(lab.root))


def supervisors_below(root: Path) -> list[int]:
    return [pid for folder in (root / "attempts").iterdir() for pid in running("engines.supervisor", str(folder))]
