"""Waiting for what must come, however slow the machine."""

import time
from collections.abc import Callable

TIMEOUT_S = 300


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "the condition was never met"
        time.sleep(0.01)
