"""Jobs: submit, look, change, and wait."""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TypeVar, cast

from motley_client.answers import FINAL_STATES, Attempt, Event, Explanation, Job, JobInFull, Plan
from motley_client.calls.connection import Connection, given, place
from motley_client.errors import Unreachable

T = TypeVar("T")
Spec = Mapping[str, object]


class JobCalls(Connection):
    # -- submit --------------------------------------------------------------------------------------------------

    def submit(self, spec: Spec, *, idempotency_key: str | None = None) -> JobInFull:
        """The new job. Repeat a submit that failed midway with the same key: the job is made once."""
        return cast("JobInFull", self._json("POST", "jobs", json=dict(spec), headers=_key(idempotency_key)))

    def submit_many(self, specs: Sequence[Spec], *, idempotency_key: str | None = None) -> list[str]:
        """The ids of up to 10,000 new jobs: all or none. `after: [{job: "#3"}]` is the fourth of them."""
        body = {"jobs": [dict(spec) for spec in specs]}
        answer = self._json("POST", "jobs/batch", json=body, headers=_key(idempotency_key))
        return [str(job_id) for job_id in answer["ids"]]

    def plan(self, spec: Spec) -> Plan:
        """Where the job could run, how fast and at what cost; nothing is submitted."""
        return cast("Plan", self._json("POST", "jobs", params={"dry_run": "true"}, json=dict(spec)))

    def clone(self, job_id: str, changes: Spec | None = None) -> JobInFull:
        """A new job like this one, but for the fields in `changes`."""
        return cast("JobInFull", self._json("POST", place("jobs", job_id, "clone"), json=dict(changes or {})))

    # -- look ----------------------------------------------------------------------------------------------------

    def jobs(
        self,
        *,
        state: Sequence[str] = (),
        owner: str | None = None,
        team: str | None = None,
        gpu_type: str | None = None,
        tag: Sequence[str] = (),
        array: str | None = None,
        created_after: datetime | str | None = None,
        updated_since: datetime | str | None = None,
        q: str | None = None,
        fields: Sequence[str] = (),
        page_size: int | None = None,
    ) -> Iterator[Job]:
        """Jobs, the newest first. `gpu_type` is the one that the job runs on, each `tag` is `name=value` or `name`.

        `q` is the beginning of a name, or eight digits or more of an id. With `fields` they have these alone.
        """
        query = {
            "state": [str(one) for one in state],
            "owner": owner,
            "team": team,
            "gpu_type": gpu_type,
            "tag": list(tag),
            "array": array,
            "created_after": created_after,
            "updated_since": updated_since,
            "q": q,
            "fields": ",".join(fields) or None,
            "limit": page_size,
        }
        return cast("Iterator[Job]", self._pages("jobs", query))

    def job(self, job_id: str) -> JobInFull:
        return cast("JobInFull", self._json("GET", place("jobs", job_id)))

    def explain(self, job_id: str, *, would_start: bool = False) -> Explanation:
        """Why the job waits, the rates that the scheduler counts on, and, if asked, what would start it now."""
        query = {"would_start": "true"} if would_start else {}
        return cast("Explanation", self._json("GET", place("jobs", job_id, "explain"), params=query))

    def events(self, job_id: str) -> Iterator[Event]:
        """What happened to the job, the oldest first."""
        return cast("Iterator[Event]", self._pages(place("jobs", job_id, "events"), {}))

    def attempts(self, job_id: str) -> Iterator[Attempt]:
        return cast("Iterator[Attempt]", self._pages(place("jobs", job_id, "attempts"), {}))

    # -- change --------------------------------------------------------------------------------------------------

    def change(self, job_id: str, fields: Spec, *, if_match: str | None = None) -> JobInFull:
        """The job with another name, weight, tags, time_limit, deadline or retries; None lifts the two limits.

        With `if_match`, a job's `etag`, it is a `Conflict` if somebody changed the job since.
        """
        headers = given({"If-Match": if_match})
        return cast("JobInFull", self._json("PATCH", place("jobs", job_id), json=dict(fields), headers=headers))

    def cancel(self, job_id: str) -> JobInFull:
        """The job, which is stopping or already cancelled. Conflict when it had finished."""
        return self._verb("cancel", job_id)

    def hold(self, job_id: str) -> JobInFull:
        """Keep the job in the queue; one that runs is requeued gracefully first."""
        return self._verb("hold", job_id)

    def release(self, job_id: str) -> JobInFull:
        """Let a held job be scheduled again."""
        return self._verb("release", job_id)

    def requeue(self, job_id: str) -> JobInFull:
        """Stop a running job gracefully, and put it back in the queue."""
        return self._verb("requeue", job_id)

    def _verb(self, verb: str, job_id: str) -> JobInFull:
        return cast("JobInFull", self._json("POST", place("jobs", job_id, verb)))

    # -- wait ----------------------------------------------------------------------------------------------------

    def wait(self, job_id: str, *, look: Callable[[JobInFull], object] | None = None) -> JobInFull:
        """The job once it has finished; `look` is shown it, again and again, until then."""
        while (job := self._patiently(lambda: self.job(job_id)))["state"] not in FINAL_STATES:
            if look is not None:
                look(job)
            time.sleep(self._poll_s)
        return job

    def _patiently(self, ask: Callable[[], T]) -> T:
        give_up_at = time.monotonic() + self._patience_s
        while True:
            try:
                return ask()
            except Unreachable:
                if time.monotonic() >= give_up_at:
                    raise
                time.sleep(self._poll_s)


def _key(key: str | None) -> dict[str, str]:
    return {"Idempotency-Key": key or str(uuid.uuid4())}
