"""Limits of long requests (streams, downloads and searches of logs; sessions) in the process that serves them."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any

from django.conf import settings

from connections_app.errors import TooManyLongRequests

LONG = "motley.long"
"""In the environment of a request on the server of long requests (`config.long_requests`)."""


def is_long(environ: Mapping[str, Any]) -> bool:
    return bool(environ.get(LONG))


class LongRequests:
    """Counting semaphore of open requests of one kind, in all and for each user."""

    def __init__(self, what: str, *, most: str | int, most_of_a_user: str | int, kept_for_others: bool = False) -> None:
        """The limits are numbers, or named by their settings.

        `kept_for_others`: nobody has a second request in the last place, so that who has none is served.
        """
        self._what, self._most, self._most_of_a_user = what, most, most_of_a_user
        self._kept_for_others = kept_for_others
        self._lock, self._open = Lock(), Counter[int]()

    def take(self, user: int) -> Callable[[], None]:
        """Count one of the user; returns what gives it back, once. Raises `TooManyLongRequests`."""
        most, of_a_user = _number(self._most), _number(self._most_of_a_user)
        with self._lock:
            if self._open[user] >= of_a_user:
                raise TooManyLongRequests(f"You have {self._open[user]} open {self._what}, the limit")
            if self._open.total() >= most:
                raise TooManyLongRequests(f"The service has {most} open {self._what}, the limit")
            if self._kept_for_others and self._open[user] and self._open.total() >= most - 1:
                said = f"The last place for {self._what} is kept for others while you have {self._open[user]} open"
                raise TooManyLongRequests(f"{said}: wait for yours to end")
            self._open[user] += 1
        left = [user]
        return lambda: self._give_back(left)

    @contextmanager
    def slot(self, user: int) -> Iterator[None]:
        """Count one of the user for a while. Raises `TooManyLongRequests`."""
        give_back = self.take(user)
        try:
            yield
        finally:
            give_back()

    def _give_back(self, left: list[int]) -> None:
        with self._lock:
            if left:
                self._open[left.pop()] -= 1


def _number(limit: str | int) -> int:
    return limit if isinstance(limit, int) else int(getattr(settings, limit))


log_streams = LongRequests("streams of logs", most="MOTLEY_LOG_STREAMS", most_of_a_user="MOTLEY_USER_LOG_STREAMS")
sessions = LongRequests("sessions", most="MOTLEY_SESSIONS", most_of_a_user="MOTLEY_USER_SESSIONS")
server_sessions = LongRequests("sessions of servers", most="MOTLEY_SESSIONS", most_of_a_user="MOTLEY_SESSIONS")
"""The other ends of sessions in ranks on servers, which their agents open."""
server_files = LongRequests("requests for files on servers", most=4, most_of_a_user=2, kept_for_others=True)
"""Each keeps a thread of the web until the server's agent has answered, and while a file is read."""
log_searches = LongRequests("searches in logs", most=3, most_of_a_user=1)
"""Each keeps a thread of the web and a processor for seconds."""
log_downloads = LongRequests("downloads of logs", most=4, most_of_a_user=2)
"""Each keeps a thread of the web while it is read."""
