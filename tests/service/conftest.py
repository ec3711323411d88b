from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.browsing import browser  # noqa: F401 - a fixture
from tests.service.running_service import Service, a_service, prepare_data_folder


@pytest.fixture(scope="session")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copied by each service that need not start from nothing: to migrate and to collect takes as long as a test."""
    return prepare_data_folder(tmp_path_factory.mktemp("service"))


@pytest.fixture
def service(runtime: Path, data_folder: Path) -> Iterator[Service]:
    """An empty service of its own for this test."""
    with a_service(prepared=data_folder) as running:
        yield running


@pytest.fixture(scope="session")
def demo(runtime: Path) -> Iterator[Service]:
    """The service as `make run` starts it, from nothing: an emulated cluster with sample jobs."""
    with a_service(DEMO="1") as running:
        yield running
