"""Processes that stand still for a while, and go on by themselves even while the campaign waits for an answer."""

import os
import signal
import threading
import time
from collections.abc import Iterable
from contextlib import suppress

POLL_S = 0.1


class Pauses(threading.Thread):
    """Sends SIGCONT to each process when its time has come."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._until: dict[int, float] = {}
        self._done = threading.Event()

    def __contains__(self, pid: int) -> bool:
        return pid in self._until

    def run(self) -> None:
        while not self._done.wait(POLL_S):
            self.go_on(time.monotonic())

    def add(self, stopped: Iterable[int], *, seconds: float) -> None:
        self._until |= dict.fromkeys(stopped, time.monotonic() + seconds)

    def go_on(self, now: float = float("inf")) -> None:
        """Let go on what was stopped until then: all, unless the time is given."""
        for pid in [pid for pid, until in list(self._until.items()) if until <= now]:
            if self._until.pop(pid, None) is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def end(self) -> None:
        self._done.set()
        self.join()
        self.go_on()
