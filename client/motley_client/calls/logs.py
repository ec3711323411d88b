"""What jobs have written."""

import time
from collections.abc import Callable, Iterator
from functools import partial

from motley_client.answers import FINAL_STATES, JobInFull, LogChunk
from motley_client.calls.connection import given, no_motley, place
from motley_client.calls.jobs import JobCalls

LOG_WAIT_S = 5
NOTHING_NEW_S = 0.2
"""A pause on top of the service's own: a busy service may answer at once instead of waiting."""


class LogCalls(JobCalls):
    def logs(
        self,
        job_id: str,
        *,
        stream: str = "stdout",
        rank: int = 0,
        offset: int | None = None,
        tail: int | None = None,
        attempt: int | None = None,
        wait_s: int = 0,
    ) -> LogChunk:
        """The log from `offset` on, or its last `tail` lines, of the latest attempt by default.

        `wait_s`: wait so long for something new.
        """
        query = {"stream": stream, "rank": rank, "attempt": attempt, "wait": wait_s or None}
        where = {"offset": offset, "tail": tail}
        response = self._send(
            "GET", place("jobs", job_id, "logs"), params=given(query | where), headers={"Accept": "*/*"}
        )
        try:
            following = int(response.headers["Motley-Next-Offset"])
            complete = response.headers["Motley-Log-Complete"] == "true"
        except (KeyError, ValueError):
            raise no_motley(response) from None
        return LogChunk(response.content, following, complete)

    def read_logs(
        self,
        job_id: str,
        *,
        stream: str = "stdout",
        rank: int = 0,
        tail: int | None = None,
        attempt: int | None = None,
    ) -> Iterator[bytes]:
        """The log, or its last `tail` lines, as far as it goes now."""
        ask = partial(self.logs, job_id, stream=stream, rank=rank, attempt=attempt)
        chunk = ask(tail=tail)
        while chunk.data:
            yield chunk.data
            chunk = ask(offset=chunk.next_offset)

    def follow_logs(
        self,
        job_id: str,
        *,
        stream: str = "stdout",
        rank: int = 0,
        tail: int | None = None,
        attempt: int | None = None,
        waiting: Callable[[JobInFull], object] | None = None,
    ) -> Iterator[bytes]:
        """The log as it grows, from the latest attempt through later ones, until the job has finished.

        With `attempt` of that one alone. `waiting` is shown the job, again and again, while it has nothing to write.
        It asks again and again instead of holding a stream open: streams are few, proxies keep their text back,
        and a service that restarts would end them; a request that waits for something new is as quick.
        """
        for number in [attempt] if attempt else self._attempts(job_id, waiting):
            yield from self._log_of(job_id, stream=stream, rank=rank, tail=tail, attempt=number)
            tail = None  # of what comes after the first, all is new

    def _log_of(self, job_id: str, *, stream: str, rank: int, tail: int | None, attempt: int) -> Iterator[bytes]:
        ask = partial(self.logs, job_id, stream=stream, rank=rank, attempt=attempt)
        chunk = self._patiently(partial(ask, tail=tail))
        while True:
            if chunk.data:
                yield chunk.data
            if chunk.complete:
                return
            if not chunk.data:
                time.sleep(NOTHING_NEW_S)
            chunk = self._patiently(partial(ask, offset=chunk.next_offset, wait_s=LOG_WAIT_S))

    def _attempts(self, job_id: str, waiting: Callable[[JobInFull], object] | None) -> Iterator[int]:
        """The number of the latest attempt, then those of the attempts that follow, until the job has finished."""
        seen = 0
        while True:
            job = self._patiently(lambda: self.job(job_id))
            numbers = sorted(attempt["number"] for attempt in job["attempts"] if attempt["number"] > seen)
            yield from numbers if seen else numbers[-1:]
            seen = max(numbers, default=seen)
            if job["state"] in FINAL_STATES and not numbers:
                return
            if not numbers:
                if waiting is not None:
                    waiting(job)
                time.sleep(self._poll_s)
