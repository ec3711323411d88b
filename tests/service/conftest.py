from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.running_service import Service, a_service


@pytest.fixture
def service(runtime: Path) -> Iterator[Service]:
    """An empty service of its own for this test."""
    with a_service() as running:
        yield running


@pytest.fixture(scope="session")
def demo(runtime: Path) -> Iterator[Service]:
    """The service as `make run` starts it: an emulated cluster with sample jobs."""
    with a_service(DEMO="1") as running:
        yield running
