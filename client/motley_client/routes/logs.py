"""Logs of jobs: parts, whole, and as they grow."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

from motley_client.connection import not_a_motley_service, url_path, without_empty
from motley_client.errors import ServerError
from motley_client.responses import FINAL_STATES, JobDetail, LogChunk, LogLine, MergedLog
from motley_client.routes.jobs import JobRoutes

LOG_WAIT_S = 5
"""How long the service holds a request for new log data before it answers with none."""
MOST_CHUNK_BYTES = 1024 * 1024
"""Of a log that the service sends at once."""
UNKNOWN_SIZE = -1
"""Of a log, from a service before 0.3."""
EMPTY_LOG_PAUSE_S = 0.2
"""Pause after an empty answer: a busy service may answer at once instead of waiting."""


class LogRoutes(JobRoutes):
    """Logs of jobs: parts, whole, and as they grow."""

    def merged_log(
        self,
        job_id: str,
        *,
        stream: str = "all",
        rank: int | None = None,
        attempt: int | None = None,
        cursor: str | None = None,
        tail: int | None = None,
        until: str | None = None,
        wait_s: int = 0,
    ) -> tuple[MergedLog, int]:
        """One part of the log of both streams and all ranks by time, and the seconds after which to ask again.

        It begins with the last `tail` lines, or goes on at `cursor`, the `next` of the part before, up to `until`, the
        `end` of the first part. `unfinished` lines come again with the next part.
        """
        query = {"stream": stream, "rank": rank, "attempt": attempt, "cursor": cursor, "lines": tail, "until": until}
        params = without_empty(query | {"wait": wait_s or None})
        response = self._send("GET", url_path("jobs", job_id, "merged-log"), params=params)
        try:
            part, after_s = response.json(), int(response.headers.get("Retry-After", 0))
        except ValueError:
            raise not_a_motley_service(response) from None
        if "more" not in part:
            raise ServerError("The service is older than this command: it does not say where a log ends. Upgrade it.")
        return cast("MergedLog", part), after_s

    def log_lines(
        self,
        job_id: str,
        *,
        stream: str = "all",
        rank: int | None = None,
        attempt: int | None = None,
        tail: int | None = None,
    ) -> Iterator[LogLine]:
        """Lines of the merged log up to its present end, or the last `tail` of them."""
        read = partial(self.merged_log, job_id, stream=stream, rank=rank)
        part, _ = read(attempt=attempt, tail=tail)
        end = part["end"]
        while part["more"]:
            yield from part["lines"]
            part, _ = read(attempt=part["attempt"], cursor=part["next"], until=end)
        yield from [*part["lines"], *part["unfinished"]]

    def follow_log_lines(
        self,
        job_id: str,
        *,
        stream: str = "all",
        rank: int | None = None,
        tail: int | None = None,
        attempt: int | None = None,
        on_wait: Callable[[JobDetail], object] | None = None,
    ) -> Iterator[LogLine]:
        """Lines of the merged log as they are finished, through later attempts, until the job has finished."""
        for number in [attempt] if attempt else self._attempt_numbers(job_id, on_wait):
            yield from self._follow_merged(job_id, stream=stream, rank=rank, tail=tail, attempt=number)
            tail = None

    def _follow_merged(
        self, job_id: str, *, stream: str, rank: int | None, tail: int | None, attempt: int
    ) -> Iterator[LogLine]:
        read = partial(self.merged_log, job_id, stream=stream, rank=rank, attempt=attempt)
        part, after_s = self._retry_unreachable(partial(read, tail=tail))
        while True:
            yield from part["lines"]
            if part["complete"]:
                yield from part["unfinished"]
                return
            if not part["more"]:
                time.sleep(max(after_s, 0 if part["lines"] else EMPTY_LOG_PAUSE_S))
            further = partial(read, cursor=part["next"] or None, wait_s=LOG_WAIT_S)
            part, after_s = self._retry_unreachable(further)

    def logs(
        self,
        job_id: str,
        *,
        stream: str = "stdout",
        rank: int = 0,
        offset: int | None = None,
        tail: int | None = None,
        limit: int | None = None,
        attempt: int | None = None,
        wait_s: int = 0,
    ) -> LogChunk:
        """One chunk of a log, from byte `offset` or from the last `tail` lines; by default of the latest attempt.

        If there is nothing new, the service waits up to `wait_s` seconds before it answers.
        """
        query = {"stream": stream, "rank": rank, "attempt": attempt, "wait": wait_s or None}
        params = without_empty(query | {"offset": offset, "tail": tail, "limit": limit})
        response = self._send("GET", url_path("jobs", job_id, "logs"), params=params, headers={"Accept": "*/*"})
        try:
            next_offset = int(response.headers["Motley-Next-Offset"])
            size = int(response.headers.get("Motley-Log-Size", UNKNOWN_SIZE))
            complete = response.headers["Motley-Log-Complete"] == "true"
            retry_after_s = int(response.headers.get("Retry-After", 0))
        except (KeyError, ValueError):
            raise not_a_motley_service(response) from None
        return LogChunk(response.content, next_offset, complete, retry_after_s, size)

    def read_logs(
        self, job_id: str, *, stream: str = "stdout", rank: int = 0, tail: int | None = None, attempt: int | None = None
    ) -> Iterator[bytes]:
        """The log, or its last `tail` lines, up to its present end."""
        read = partial(self.logs, job_id, stream=stream, rank=rank, attempt=attempt)
        chunk = read(tail=tail)
        end = chunk.size
        while chunk.data:
            yield chunk.data
            left = end - chunk.next_offset
            if end != UNKNOWN_SIZE and left <= 0:
                return
            chunk = read(offset=chunk.next_offset, limit=min(MOST_CHUNK_BYTES, left) if left > 0 else None)

    def follow_logs(
        self,
        job_id: str,
        *,
        stream: str = "stdout",
        rank: int = 0,
        tail: int | None = None,
        attempt: int | None = None,
        on_wait: Callable[[JobDetail], object] | None = None,
    ) -> Iterator[bytes]:
        """The log as it grows: from the latest attempt through later ones until the job has finished.

        With `attempt`, only that one is followed. `on_wait` is called with the job at each poll while no attempt has
        started. This is long polling, not server-sent events: streams are limited in number, proxies buffer them, and
        a restart of the service would end them.
        """
        for number in [attempt] if attempt else self._attempt_numbers(job_id, on_wait):
            yield from self._follow_attempt(job_id, stream=stream, rank=rank, tail=tail, attempt=number)
            tail = None  # later attempts are new from their first line on

    def _follow_attempt(
        self, job_id: str, *, stream: str, rank: int, tail: int | None, attempt: int
    ) -> Iterator[bytes]:
        read = partial(self.logs, job_id, stream=stream, rank=rank, attempt=attempt)
        chunk = self._retry_unreachable(partial(read, tail=tail))
        while True:
            if chunk.data:
                yield chunk.data
            if chunk.complete:
                return
            if chunk.next_offset >= chunk.size:
                time.sleep(max(chunk.retry_after_s, 0 if chunk.data else EMPTY_LOG_PAUSE_S))
            chunk = self._retry_unreachable(partial(read, offset=chunk.next_offset, wait_s=LOG_WAIT_S))

    def _attempt_numbers(self, job_id: str, on_wait: Callable[[JobDetail], object] | None) -> Iterator[int]:
        """The number of the latest attempt, then of each later one, until the job has finished."""
        latest = 0
        while True:
            job = self._retry_unreachable(lambda: self.job(job_id))
            numbers = sorted(attempt["number"] for attempt in job["attempts"] if attempt["number"] > latest)
            yield from numbers if latest else numbers[-1:]
            latest = max(numbers, default=latest)
            if job["state"] in FINAL_STATES and not numbers:
                return
            if not numbers:
                if on_wait is not None:
                    on_wait(job)
                time.sleep(self._poll_s)
