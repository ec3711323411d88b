from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.browsing import browser  # noqa: F401 - a fixture
from tests.service.running_service import SESSIONS, STREAMS, Service, a_service, prepare_data_folder


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
def shared_service(runtime: Path, data_folder: Path) -> Iterator[Service]:
    """One with four GPUs for all tests that leave it as they found it: a start takes 12 s of CPU time."""
    limits = {"MOTLEY_USER_LOG_STREAMS": str(STREAMS), "MOTLEY_USER_SESSIONS": str(SESSIONS)}
    with a_service(prepared=data_folder, **limits) as running:
        running.declare(a100=4)
        yield running


@pytest.fixture
def four_gpus(shared_service: Service) -> Iterator[Service]:
    """The shared service, which may be killed and restarted; afterwards its four GPUs are free again."""
    yield shared_service
    shared_service.settle()


@pytest.fixture(scope="session")
def demo(runtime: Path) -> Iterator[Service]:
    """The service as `make run` starts it, from nothing: an emulated cluster with sample jobs."""
    with a_service(DEMO="1") as running:
        yield running
