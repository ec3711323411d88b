import os
import subprocess
from pathlib import Path

import pytest
from django.conf import settings

from tests.engines.conftest import lab, place  # noqa: F401 - fixtures
from tests.engines.engine_lab import Lab
from tests.training.training_lab import Training

WANTED = os.environ.get("MOTLEY_TEST_TORCH", "some")
"""Trainings that run: `some`, DDP by torchrun over the service on Slurm, and without it on this machine; or `all`: make
test-torch."""
collect_ignore = [] if WANTED == "all" else ["test_frameworks.py", "test_tracking.py"]
PYTHON = Path(settings.BASE_DIR) / ".cache" / "torch" / "bin" / "python"


@pytest.fixture(scope="session")
def torch_python() -> Path:
    """The Python that has PyTorch."""
    if not PYTHON.exists() and os.environ.get("CI") != "true":
        pytest.skip("PyTorch is not installed: ./bootstrap.sh test-all says why")
    return PYTHON


@pytest.fixture
def frameworks(torch_python: Path) -> None:
    """Lightning, Transformers and Accelerate, which Debian's PyTorch is too old for."""
    found = subprocess.run([torch_python, "-c", "import lightning, transformers"], check=False, capture_output=True)
    if found.returncode:
        pytest.skip("Lightning and Transformers are not installed: no CPU wheel of PyTorch was in reach of pip")


@pytest.fixture
def training(lab: Lab, torch_python: Path) -> Training:  # noqa: F811 - pytest's way
    return Training(lab, torch_python)
