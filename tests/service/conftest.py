from collections.abc import Iterator

import pytest
from running_service import Service, a_service


@pytest.fixture
def service() -> Iterator[Service]:
    """An empty service of its own for this test."""
    with a_service() as running:
        yield running
