import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.local.isolation import Isolation, best_isolation
from tests.engines.engine_lab import Lab, stop_all


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
