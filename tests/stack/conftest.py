from collections.abc import Iterator

import pytest
from composed import Stack, a_stack


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """The full stack with a small cluster."""
    with a_stack() as running:
        running.declare(a100=4, t4=4)
        yield running
