"""Jobs: submission, lists, commands, what is known of one."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import cast

from motley_client.connection import UPLOAD_TIMEOUT_S, Connection, Spec, url_path, with_key, without_empty
from motley_client.responses import (
    FINAL_STATES,
    Array,
    Attempt,
    Curve,
    Event,
    Explanation,
    Graph,
    Job,
    JobDetail,
    JobFolder,
    JobForecast,
    JobGpus,
    Plan,
    Receipt,
    SavedCheckpoints,
)
from motley_client.sessions import Session, open_session


class JobRoutes(Connection):
    """Jobs: submission, lists, commands, what is known of one."""

    def submit(self, spec: Spec, *, idempotency_key: str | None = None) -> JobDetail:
        """Submit a job. To retry a failed call safely, pass the same `idempotency_key` again."""
        return cast("JobDetail", self._json("POST", "jobs", json=dict(spec), headers=with_key(idempotency_key)))

    def submit_many(self, specs: Sequence[Spec], *, idempotency_key: str | None = None) -> list[str]:
        """Submit up to 10,000 jobs, all or none, and return their ids.

        A job may depend on an earlier one of the batch: `after: [{job: "#3"}]` refers to the fourth.
        """
        body = {"jobs": [dict(spec) for spec in specs]}
        answer = self._json("POST", "jobs/batch", json=body, headers=with_key(idempotency_key))
        return [str(job_id) for job_id in answer["ids"]]

    def plan(self, spec: Spec, *, forecast: bool = False) -> Plan:
        """Dry run: where the job could run, how fast and at what cost. Nothing is submitted."""
        query = {"dry_run": "true"} | ({"forecast": "true"} if forecast else {})
        return cast("Plan", self._json("POST", "jobs", params=query, json=dict(spec)))

    def clone(self, job_id: str, changes: Spec | None = None, *, checkpoint: str = "") -> JobDetail:
        """Submit a copy of the job with `changes` applied; it begins with a copy of the checkpoint, if one is named."""
        path, body = url_path("jobs", job_id, "clone"), dict(changes or {})
        # Gigabytes may be copied.
        more = {"params": {"checkpoint": checkpoint}, "timeout": UPLOAD_TIMEOUT_S} if checkpoint else {}
        return cast("JobDetail", self._json("POST", path, json=body, headers=with_key(None), **more))

    def checkpoints(self, job_id: str) -> SavedCheckpoints:
        """Checkpoints of the job, the newest first, and the jobs that began with one of them."""
        return cast("SavedCheckpoints", self._json("GET", url_path("jobs", job_id, "checkpoints")))

    def jobs(
        self,
        *,
        state: Sequence[str] = (),
        owner: str | None = None,
        team: str | None = None,
        gpu_type: str | None = None,
        tag: Sequence[str] = (),
        array: str | None = None,
        recurring: str | None = None,
        recipe: str | None = None,
        created_after: datetime | str | None = None,
        updated_since: datetime | str | None = None,
        q: str | None = None,
        command: str | None = None,
        name: str | None = None,
        fields: Sequence[str] = (),
        page_size: int | None = None,
    ) -> Iterator[Job]:
        """Jobs that match every filter, newest first.

        `gpu_type` is the type that the job runs on; each `tag` is `name=value` or `name`; `q` is the beginning of a
        name, or at least eight digits of an id; `name` is a whole name; `command` is text in the command, in any case;
        `recurring` is the name of a recurring job, whose runs they are; `recipe` that of a recipe.
        With `fields`, only these fields are returned.
        """
        query = {
            "state": [str(one) for one in state],
            "owner": owner,
            "team": team,
            "gpu_type": gpu_type,
            "tag": list(tag),
            "array": array,
            "recurring": recurring,
            "recipe": recipe,
            "created_after": created_after,
            "updated_since": updated_since,
            "q": q,
            "command": command,
            "name": name,
            "fields": ",".join(fields) or None,
            "limit": page_size,
        }
        return cast("Iterator[Job]", self._pages("jobs", query))

    def job(self, job_id: str) -> JobDetail:
        """The job with its attempts and its `etag`."""
        return cast("JobDetail", self._json("GET", url_path("jobs", job_id)))

    def array(self, array_id: str) -> Array:
        """Progress of an array: its tasks by state, how long one takes, and the GPU time that is left."""
        return cast("Array", self._json("GET", url_path("arrays", array_id)))

    def explain(self, job_id: str, *, would_start: bool = False) -> Explanation:
        """Why the job waits and which rates the scheduler assumes; with `would_start`, also what would start it now."""
        query = {"would_start": "true"} if would_start else {}
        return cast("Explanation", self._json("GET", url_path("jobs", job_id, "explain"), params=query))

    def job_gpus(self, job_id: str) -> JobGpus:
        """What was read of a job's GPUs; `NotFound` also where the service is older than this route."""
        return cast("JobGpus", self._json("GET", url_path("jobs", job_id, "gpus")))

    def job_forecast(self, job_id: str) -> JobForecast:
        """When the job starts and ends; `NotFound` also where the service is older than this route."""
        return cast("JobForecast", self._json("GET", url_path("jobs", job_id, "forecast")))

    def curve(self, job_id: str) -> Curve:
        """Steps, losses, rates and named metrics that the job has reported, the oldest first."""
        return cast("Curve", self._json("GET", url_path("jobs", job_id, "curve")))

    def receipt(self, job_id: str) -> Receipt:
        """What the job took by GPU type, and on which other GPUs it would have been cheaper or sooner."""
        return cast("Receipt", self._json("GET", url_path("jobs", job_id, "receipt")))

    def graph(self, job_id: str) -> Graph:
        """Jobs that the job waits for, those that wait for it, their critical path, and when all have ended."""
        return cast("Graph", self._json("GET", url_path("jobs", job_id, "graph")))

    def events(self, job_id: str) -> Iterator[Event]:
        """Events of the job, oldest first."""
        return cast("Iterator[Event]", self._pages(url_path("jobs", job_id, "events"), {}))

    def comment(self, job_id: str, text: str) -> Event:
        """Add a comment of at most 500 characters to a job, finished or not; returns the `commented` event."""
        return cast("Event", self._json("POST", url_path("jobs", job_id, "comments"), json={"text": text}))

    def delete_comment(self, job_id: str, event_id: int) -> None:
        """Delete a comment of one's own; administrators may delete any."""
        self._send("DELETE", url_path("jobs", job_id, "comments", str(event_id)))

    def attempts(self, job_id: str) -> Iterator[Attempt]:
        """Attempts of the job: each time it was given GPUs."""
        return cast("Iterator[Attempt]", self._pages(url_path("jobs", job_id, "attempts"), {}))

    def change(self, job_id: str, fields: Spec, *, if_match: str | None = None) -> JobDetail:
        """Change the job's name, weight, tags, retries, time_limit, deadline or begin_time; None removes these.

        With `if_match`, the `etag` of a job, raises `Conflict` if the job has changed since (optimistic concurrency).
        """
        headers = without_empty({"If-Match": if_match})
        return cast("JobDetail", self._json("PATCH", url_path("jobs", job_id), json=dict(fields), headers=headers))

    def cancel(self, job_id: str) -> JobDetail:
        """Cancel the job. Raises `Conflict` if it has already finished."""
        return self._job_command("cancel", job_id)

    def hold(self, job_id: str) -> JobDetail:
        """Keep the job in the queue; a running job is first requeued gracefully."""
        return self._job_command("hold", job_id)

    def release(self, job_id: str) -> JobDetail:
        """Let a held job be scheduled again."""
        return self._job_command("release", job_id)

    def requeue(self, job_id: str) -> JobDetail:
        """Stop a running job gracefully and put it back in the queue."""
        return self._job_command("requeue", job_id)

    def wait(self, job_id: str, *, on_poll: Callable[[JobDetail], object] | None = None) -> JobDetail:
        """Wait until the job has finished, and return it; `on_poll` is called with the job at each poll until then."""
        while (job := self._retry_unreachable(lambda: self.job(job_id)))["state"] not in FINAL_STATES:
            if on_poll is not None:
                on_poll(job)
            time.sleep(self._poll_s)
        return job

    def _job_command(self, command: str, job_id: str) -> JobDetail:
        return cast("JobDetail", self._json("POST", url_path("jobs", job_id, command)))

    def files(self, job_id: str, path: str = "") -> JobFolder:
        """Content of a folder of the job, e.g. `work/out`; without a path its folders."""
        return cast(
            "JobFolder", self._json("GET", url_path("jobs", job_id, "files"), params={"path": path} if path else {})
        )

    def file(self, job_id: str, path: str) -> Iterator[bytes]:
        """Bytes of a file of the job, block by block, while they are received."""
        return self._blocks(url_path("jobs", job_id, "files", "content"), params={"path": path})

    def open_session(
        self, job_id: str, request: Mapping[str, object], *, rank: int = 0
    ) -> AbstractContextManager[Session]:
        """A session in a running job: `{"argv": [...] or None, "terminal": ...}` or `{"port": 8888}`."""
        address = self._http.base_url.join(f"{url_path('jobs', job_id, 'session')}?rank={rank}")
        return open_session(f"ws{str(address)[4:]}", self._http.headers["Authorization"], request)
