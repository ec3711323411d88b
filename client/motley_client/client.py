"""The service in Python.

with Client("https://motley.example", token) as motley:
    job = motley.submit({"name": "resnet", "command": "torchrun train.py", "gpus": 4})
    job = motley.wait(job["id"])
"""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, cast
from urllib.parse import quote

import httpx

from motley_client.answers import FINAL_STATES, Job, LogChunk, Node, Round
from motley_client.errors import AuthError, MotleyError, ServerError, Unreachable, error_of

T = TypeVar("T")

TIMEOUT_S = 30.0
LOG_WAIT_S = 5
POLL_PERIOD_S = 1.0
NOTHING_NEW_S = 0.2
"""A pause on top of the service's own: a busy service may answer at once instead of waiting."""


class Client:
    """One connection to a service, as the owner of the token. All errors are `MotleyError`s."""

    def __init__(self, url: str, token: str, *, patience_s: float = 600.0) -> None:
        """`patience_s`: how long `wait` and `follow_logs` bear with a service that is away, as in an upgrade."""
        if not (token.isascii() and token.isprintable()):
            raise AuthError("The token has characters that no token has: copy it again.")
        self._patience_s = patience_s
        self._http = httpx.Client(
            base_url=f"{url.rstrip('/')}/api/v1/",
            headers={"Authorization": f"Bearer {token}", "Accept": "application/json"},
            timeout=TIMEOUT_S,
            # Repeats what could not connect, and so was never sent: safe for every verb.
            transport=httpx.HTTPTransport(retries=2),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def submit(self, spec: Mapping[str, object], *, idempotency_key: str | None = None) -> Job:
        """The new job. Repeat a submit that failed midway with the same key: the job is made once."""
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4())}
        return cast("Job", self._json("POST", "jobs", json=dict(spec), headers=headers))

    def jobs(self, *, state: Sequence[str] = (), team: str | None = None, q: str | None = None) -> Iterator[Job]:
        """Jobs, the newest first. `q` is the beginning of a name or an id."""
        return cast("Iterator[Job]", self._pages("jobs", {"state": list(state), "team": team, "q": q}))

    def job(self, job_id: str) -> Job:
        return cast("Job", self._json("GET", _job_path(job_id)))

    def cancel(self, job_id: str) -> Job:
        """The job, which is stopping or already cancelled. Conflict when it had finished."""
        return cast("Job", self._json("POST", _job_path(job_id) + "/cancel"))

    def nodes(self) -> Iterator[Node]:
        return cast("Iterator[Node]", self._pages("nodes", {}))

    def rounds(self) -> Iterator[Round]:
        """Rounds of the scheduler, the newest first."""
        return cast("Iterator[Round]", self._pages("rounds", {}))

    def round(self, number: int) -> Round:
        return cast("Round", self._json("GET", f"rounds/{number}"))

    def wait(self, job_id: str) -> Job:
        """The job once it has finished."""
        while (job := self._patiently(lambda: self.job(job_id)))["state"] not in FINAL_STATES:
            time.sleep(POLL_PERIOD_S)
        return job

    def logs(
        self,
        job_id: str,
        *,
        stream: str = "stdout",
        rank: int = 0,
        offset: int = 0,
        attempt: int | None = None,
        wait_s: int = 0,
    ) -> LogChunk:
        """The log from `offset` on, of the latest attempt by default. `wait_s`: wait so long for something new."""
        query = {"stream": stream, "rank": rank, "offset": offset, "attempt": attempt, "wait": wait_s or None}
        response = self._send("GET", _job_path(job_id) + "/logs", params=_given(query), headers={"Accept": "*/*"})
        try:
            following = int(response.headers["Motley-Next-Offset"])
            complete = response.headers["Motley-Log-Complete"] == "true"
        except (KeyError, ValueError):
            raise _no_motley(response) from None
        return LogChunk(response.content, following, complete)

    def read_logs(
        self, job_id: str, *, stream: str = "stdout", rank: int = 0, attempt: int | None = None
    ) -> Iterator[bytes]:
        """The log as far as it goes now."""
        ask = partial(self.logs, job_id, stream=stream, rank=rank, attempt=attempt)
        chunk = ask()
        while chunk.data:
            yield chunk.data
            chunk = ask(offset=chunk.next_offset)

    def follow_logs(self, job_id: str, *, stream: str = "stdout", rank: int = 0) -> Iterator[bytes]:
        """The log as it grows, from the latest attempt through later ones, until the job has finished."""
        for attempt in self._attempts(job_id):
            yield from self._log_of(job_id, stream=stream, rank=rank, attempt=attempt)

    def _log_of(self, job_id: str, *, stream: str, rank: int, attempt: int) -> Iterator[bytes]:
        ask = partial(self.logs, job_id, stream=stream, rank=rank, attempt=attempt, wait_s=LOG_WAIT_S)
        offset, complete = 0, False
        while not complete:
            chunk = self._patiently(partial(ask, offset=offset))
            offset, complete = chunk.next_offset, chunk.complete
            if chunk.data:
                yield chunk.data
            elif not complete:
                time.sleep(NOTHING_NEW_S)

    def _attempts(self, job_id: str) -> Iterator[int]:
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
                time.sleep(POLL_PERIOD_S)

    def _patiently(self, ask: Callable[[], T]) -> T:
        give_up_at = time.monotonic() + self._patience_s
        while True:
            try:
                return ask()
            except Unreachable:
                if time.monotonic() >= give_up_at:
                    raise
                time.sleep(POLL_PERIOD_S)

    def _pages(self, path: str, query: Mapping[str, object]) -> Iterator[Any]:
        cursor: object = None
        while True:
            page = self._json("GET", path, params=_given({**query, "cursor": cursor}))
            yield from page["results"]
            if not (cursor := page["next"]):
                return

    def _json(self, method: str, path: str, **request: Any) -> Any:
        response = self._send(method, path, **request)
        try:
            return response.json()
        except ValueError:
            raise _no_motley(response) from None

    def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path, **request)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unreachable(f"No answer from {self._http.base_url}: {str(error) or type(error).__name__}") from error
        if not response.is_success:
            raise error_of(response)
        return response


def _job_path(job_id: str) -> str:
    return f"jobs/{quote(job_id, safe='')}"


def _given(query: Mapping[str, object]) -> dict[str, Any]:
    return {name: value for name, value in query.items() if value is not None}


def _no_motley(response: httpx.Response) -> MotleyError:
    return ServerError(f"What answers at {response.url} is no Motley service: check the address.")
