"""Limits of log followers in a web process: waiting threads, and requests per second.

Both are of one process, without a shared store: every process has its part of the followers.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from time import monotonic

from django.conf import settings

WAITING_POLLS = 4
"""Of the threads of a process of the web; streams have a server of their own (`config.long_requests`)."""
LONGEST_PAUSE_S = 30


class StreamSlots:
    """Counting semaphore of requests that wait for more of a log: each occupies a thread, and others need some, too."""

    def __init__(self) -> None:
        self._lock, self._taken = Lock(), 0

    def take(self) -> bool:
        """Take a slot; False if all are taken."""
        with self._lock:
            is_free = self._taken < WAITING_POLLS
            self._taken += is_free
            return is_free

    def give_back(self) -> None:
        with self._lock:
            self._taken -= 1

    @contextmanager
    def slot_if_free(self) -> Iterator[bool]:
        """Hold a slot, if one is free; whether one was."""
        is_ours = self.take()
        try:
            yield is_ours
        finally:
            if is_ours:
                self.give_back()


class PollRate:
    """Rate limit that spreads the polls of followers over time: each is told when to poll again.

    They are given turns one after the other, `MOTLEY_LOG_POLLS` a second (a virtual queue); who follows alone has no
    pause.
    """

    def __init__(self) -> None:
        self._lock, self._next_turn = Lock(), 0.0

    def pause_s(self) -> int:
        """Whole seconds until the turn that this call takes; 0 if it comes within a second."""
        with self._lock:
            now = monotonic()
            last = min(max(self._next_turn, now), now + LONGEST_PAUSE_S)
            self._next_turn = last + 1 / settings.MOTLEY_LOG_POLLS
            return int(self._next_turn - now)


stream_slots, pace = StreamSlots(), PollRate()
