"""Slots of solves that answer a request: what-if analyses and replays of rounds, which take seconds of a processor."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

from django.conf import settings
from django.contrib.auth.models import User

from insight_app.errors import TooManySolves

LONGEST_WAIT_S = 10.0
MOST_WAITING = 4
"""Requests that wait for a slot, each of which keeps a thread of the web server."""


class SolveSlots:
    """Counting semaphore with a short queue, in which a user has one slot and one place at most."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._solving: list[int] = []
        self._waiting: list[int] = []

    @contextmanager
    def slot_for(self, user: User) -> Iterator[None]:
        """Hold a slot; raises `TooManySolves` if none becomes free in time, or too many requests wait for one."""
        with self._changed:
            self._take(user.pk)
        try:
            yield
        finally:
            with self._changed:
                self._solving.remove(user.pk)
                self._changed.notify_all()

    def _take(self, user: int) -> None:
        if not self._is_free(user):
            if user in self._waiting or len(self._waiting) >= MOST_WAITING:
                raise TooManySolves
            self._wait(user)
        self._solving.append(user)

    def _wait(self, user: int) -> None:
        self._waiting.append(user)
        try:
            if not self._changed.wait_for(lambda: self._is_free(user), LONGEST_WAIT_S):
                raise TooManySolves
        finally:
            self._waiting.remove(user)

    def _is_free(self, user: int) -> bool:
        return user not in self._solving and len(self._solving) < settings.MOTLEY_SOLVES


solve_slots = SolveSlots()
