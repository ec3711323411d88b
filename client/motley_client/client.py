"""Python client of the Motley REST API: one method per route, typed.

with Client("https://motley.example", token) as motley:
    job = motley.submit({"name": "resnet", "command": "torchrun train.py", "gpus": 4})
    job = motley.wait(job["id"])
"""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import cast

from motley_client.code import PackedCode, packed
from motley_client.connection import Connection, not_a_motley_service, url_path, without_empty
from motley_client.errors import InvalidRequest, NotFound, ServerError
from motley_client.responses import (
    FINAL_STATES,
    AppliedPolicy,
    Array,
    Attempt,
    ChosenPolicy,
    CodeArchive,
    CodeArchiveDetail,
    Curve,
    Decision,
    DueTime,
    Event,
    Explanation,
    GpuType,
    Graph,
    Invitation,
    Job,
    JobDetail,
    JobFolder,
    JobForecast,
    JobGpus,
    LabPolicyPreview,
    LabRun,
    LogChunk,
    LogLine,
    Me,
    Member,
    MergedLog,
    MonthlyReport,
    NewNotificationTarget,
    NewServer,
    NewToken,
    Node,
    NodeSavings,
    Notification,
    NotificationTarget,
    Plan,
    Policy,
    PolicyGuard,
    PolicyPreview,
    Receipt,
    Recipe,
    RecipeDetail,
    RecipeVersion,
    RecurringJob,
    RecurringJobDetail,
    Round,
    RoundDetail,
    SavedCheckpoints,
    Scope,
    Secret,
    Server,
    Storage,
    Sweep,
    SweepDetail,
    Team,
    TeamStarts,
    Throughput,
    Token,
    Trial,
    UsageReport,
    Window,
)
from motley_client.sessions import Session, open_session

Spec = Mapping[str, object]

UPLOAD_TIMEOUT_S = 300.0
"""Time in which the service checks and stores an archive, or copies a checkpoint."""
LOG_WAIT_S = 5
"""How long the service holds a request for new log data before it answers with none."""
MOST_CHUNK_BYTES = 1024 * 1024
"""Of a log that the service sends at once."""
UNKNOWN_SIZE = -1
"""Of a log, from a service before 0.3."""
EMPTY_LOG_PAUSE_S = 0.2
"""Pause after an empty answer: a busy service may answer at once instead of waiting."""


class Client(Connection):
    """Connection to a Motley service with a method for every route. All errors are `MotleyError`s.

    Submissions carry an idempotency key, so that repeating one creates no second job. Methods marked
    "Administrators only" raise `AuthError` for everybody else.
    """

    # -- submit --------------------------------------------------------------------------------------------------

    def submit(self, spec: Spec, *, idempotency_key: str | None = None) -> JobDetail:
        """Submit a job. To retry a failed call safely, pass the same `idempotency_key` again."""
        return cast("JobDetail", self._json("POST", "jobs", json=dict(spec), headers=_key(idempotency_key)))

    def submit_many(self, specs: Sequence[Spec], *, idempotency_key: str | None = None) -> list[str]:
        """Submit up to 10,000 jobs, all or none, and return their ids.

        A job may depend on an earlier one of the batch: `after: [{job: "#3"}]` refers to the fourth.
        """
        body = {"jobs": [dict(spec) for spec in specs]}
        answer = self._json("POST", "jobs/batch", json=body, headers=_key(idempotency_key))
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
        return cast("JobDetail", self._json("POST", path, json=body, headers=_key(None), **more))

    def checkpoints(self, job_id: str) -> SavedCheckpoints:
        """Checkpoints of the job, the newest first, and the jobs that began with one of them."""
        return cast("SavedCheckpoints", self._json("GET", url_path("jobs", job_id, "checkpoints")))

    # -- code ----------------------------------------------------------------------------------------------------

    def upload_code(self, folder: Path | str, *, team: str | None = None) -> str:
        """Pack a folder, upload it unless the team has it already, and return its digest, for a spec's `code`.

        `team` is that of the job; default: the one that the caller joined first.
        """
        with packed(Path(folder).resolve()) as code:
            self.upload_packed(code, team=team or self.default_team())
            return code.digest

    def upload_packed(self, code: PackedCode, *, team: str) -> bool:
        """Upload packed code; False if the team has it already."""
        path = url_path("teams", team, "code", code.digest)
        if self._has_code(path):
            return False
        headers = {"Content-Type": "application/gzip", "Content-Length": str(code.size_bytes)}
        self._send("PUT", path, content=_Again(code.chunks), headers=headers, timeout=UPLOAD_TIMEOUT_S)
        return True

    def codes(self, team: str) -> Iterator[CodeArchive]:
        """Archives of a team's code, newest first."""
        return cast("Iterator[CodeArchive]", self._pages(url_path("teams", team, "code"), {}))

    def code(self, team: str, digest: str) -> CodeArchiveDetail:
        """One archive, with the diff that it was packed from."""
        return cast("CodeArchiveDetail", self._json("GET", url_path("teams", team, "code", digest)))

    def download_code(self, team: str, digest: str) -> bytes:
        """An archive (.tar.gz)."""
        return self._send("GET", url_path("teams", team, "code", digest, "archive")).content

    def _has_code(self, path: str) -> bool:
        try:
            return bool(self._json("GET", path, params={"fields": "stored"})["stored"])
        except NotFound:
            return False

    def default_team(self) -> str:
        """The team of jobs that name none: the one that the caller joined first; `InvalidRequest` if there is none."""
        me = self.me()
        teams = me["teams"]
        default = me.get("default_team") or (teams[0] if len(teams) == 1 else None)  # 0.2 does not tell it
        if default is None:
            raise InvalidRequest(f"Choose a team for the code: {', '.join(teams) or 'you are in none'}.")
        return default

    # -- jobs ----------------------------------------------------------------------------------------------------

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

    # -- recurring jobs ------------------------------------------------------------------------------------------

    def recurring_jobs(self, *, name: str | None = None, team: str | None = None) -> Iterator[RecurringJob]:
        """Recurring jobs of your teams, the oldest first."""
        return cast("Iterator[RecurringJob]", self._pages("recurring-jobs", {"name": name, "team": team}))

    def recurring_job(self, number: int) -> RecurringJobDetail:
        """The recurring job with its `etag`."""
        return cast("RecurringJobDetail", self._json("GET", url_path("recurring-jobs", number)))

    def due_times(self, number: int, *, page_size: int | None = None) -> Iterator[DueTime]:
        """Due times of the recurring job that have come, the latest first."""
        path = url_path("recurring-jobs", number, "runs")
        return cast("Iterator[DueTime]", self._pages(path, {"limit": page_size}))

    def add_recurring_job(self, fields: Spec, *, idempotency_key: str | None = None) -> RecurringJobDetail:
        """Add a recurring job: `schedule`, `spec`, and if they are not the defaults `name`, `timezone`,
        `concurrency` (forbid, replace, allow) and `missed` (skip, once).
        """
        headers = _key(idempotency_key)
        made = self._json("POST", "recurring-jobs", json=dict(fields), headers=headers)
        return cast("RecurringJobDetail", made)

    def change_recurring_job(self, number: int, fields: Spec, *, if_match: str | None = None) -> RecurringJobDetail:
        """Change fields of a recurring job; a new `spec` makes you its owner."""
        headers = {"If-Match": if_match} if if_match else {}
        changed = self._json("PATCH", url_path("recurring-jobs", number), json=dict(fields), headers=headers)
        return cast("RecurringJobDetail", changed)

    def pause_recurring_job(self, number: int) -> RecurringJobDetail:
        """Pause it: nothing is submitted until it is resumed."""
        return cast("RecurringJobDetail", self._json("POST", url_path("recurring-jobs", number, "pause")))

    def resume_recurring_job(self, number: int) -> RecurringJobDetail:
        """Resume it from its next due time on; if its owner is gone, you become its owner."""
        return cast("RecurringJobDetail", self._json("POST", url_path("recurring-jobs", number, "resume")))

    def run_recurring_job(self, number: int, *, idempotency_key: str | None = None) -> JobDetail:
        """Submit a run now, in its owner's name."""
        path = url_path("recurring-jobs", number, "run")
        return cast("JobDetail", self._json("POST", path, headers=_key(idempotency_key)))

    def delete_recurring_job(self, number: int) -> None:
        """Delete it, with the record of its due times; its jobs stay."""
        self._send("DELETE", url_path("recurring-jobs", number))

    # -- sweeps --------------------------------------------------------------------------------------------------

    def sweeps(self, *, name: str | None = None, team: str | None = None) -> Iterator[Sweep]:
        """Sweeps of your teams, the newest first."""
        return cast("Iterator[Sweep]", self._pages("sweeps", {"name": name, "team": team}))

    def sweep(self, number: int) -> SweepDetail:
        """The sweep with the counts of its trials, the best one, its cost and its end at the pace so far."""
        return cast("SweepDetail", self._json("GET", url_path("sweeps", number)))

    def trials(self, number: int, *, page_size: int | None = 200) -> Iterator[Trial]:
        """Trials of the sweep by number."""
        return cast("Iterator[Trial]", self._pages(url_path("sweeps", number, "trials"), {"limit": page_size}))

    def start_sweep(self, fields: Spec, *, idempotency_key: str | None = None) -> SweepDetail:
        """Start a sweep: `name`, `metric`, `parameters`, `spec`, and if they are not the defaults `method` (grid,
        random, bayes, population), `early_terminate`, `population`, `run_cap`, `at_a_time`, `max_failed` and `seed`.
        """
        return cast("SweepDetail", self._json("POST", "sweeps", json=dict(fields), headers=_key(idempotency_key)))

    def stop_sweep(self, number: int) -> SweepDetail:
        """Stop it: its open trials are cancelled, and no other is started."""
        return cast("SweepDetail", self._json("POST", url_path("sweeps", number, "stop")))

    def delete_sweep(self, number: int) -> None:
        """Delete a sweep that has ended, with the record of its trials; their jobs stay."""
        self._send("DELETE", url_path("sweeps", number))

    # -- recipes -------------------------------------------------------------------------------------------------

    def recipes(self, *, name: str | None = None, team: str | None = None) -> Iterator[Recipe]:
        """Recipes of your teams, the oldest first."""
        return cast("Iterator[Recipe]", self._pages("recipes", {"name": name, "team": team}))

    def recipe(self, number: int) -> RecipeDetail:
        """The recipe with its `etag`."""
        return cast("RecipeDetail", self._json("GET", url_path("recipes", number)))

    def recipe_versions(self, number: int) -> Iterator[RecipeVersion]:
        """Versions of the recipe, the latest first."""
        return cast("Iterator[RecipeVersion]", self._pages(url_path("recipes", number, "versions"), {}))

    def add_recipe(self, fields: Spec, *, idempotency_key: str | None = None) -> RecipeDetail:
        """Add a recipe: `spec`, and if wanted `name`, `description`, `parameters` and `editors` (members, leads)."""
        made = self._json("POST", "recipes", json=dict(fields), headers=_key(idempotency_key))
        return cast("RecipeDetail", made)

    def change_recipe(self, number: int, fields: Spec, *, if_match: str | None = None) -> RecipeDetail:
        """Change fields of a recipe; another `spec`, or other `parameters`, are its next version."""
        headers = {"If-Match": if_match} if if_match else {}
        return cast(
            "RecipeDetail", self._json("PATCH", url_path("recipes", number), json=dict(fields), headers=headers)
        )

    def delete_recipe(self, number: int) -> None:
        """Delete it with its versions; its jobs stay."""
        self._send("DELETE", url_path("recipes", number))

    def submit_recipe(
        self,
        number: int,
        parameters: Spec | None = None,
        *,
        changes: Spec | None = None,
        version: int | None = None,
        idempotency_key: str | None = None,
    ) -> JobDetail:
        """Submit a job by a recipe; `changes` are fields of the job in place of the recipe's."""
        body = _of_recipe(parameters, changes, version)
        path = url_path("recipes", number, "submit")
        return cast("JobDetail", self._json("POST", path, json=body, headers=_key(idempotency_key)))

    def plan_recipe(
        self,
        number: int,
        parameters: Spec | None = None,
        *,
        changes: Spec | None = None,
        version: int | None = None,
        forecast: bool = False,
    ) -> Plan:
        """Plan the job of a recipe without submitting it."""
        query = {"dry_run": "true", **({"forecast": "true"} if forecast else {})}
        body = _of_recipe(parameters, changes, version)
        return cast("Plan", self._json("POST", url_path("recipes", number, "submit"), params=query, json=body))

    # -- files ---------------------------------------------------------------------------------------------------

    def files(self, job_id: str, path: str = "") -> JobFolder:
        """Content of a folder of the job, e.g. `work/out`; without a path its folders."""
        return cast(
            "JobFolder", self._json("GET", url_path("jobs", job_id, "files"), params={"path": path} if path else {})
        )

    def file(self, job_id: str, path: str) -> Iterator[bytes]:
        """Bytes of a file of the job, block by block, while they are received."""
        return self._blocks(url_path("jobs", job_id, "files", "content"), params={"path": path})

    # -- logs ----------------------------------------------------------------------------------------------------

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

    # -- sessions ------------------------------------------------------------------------------------------------

    def open_session(
        self, job_id: str, request: Mapping[str, object], *, rank: int = 0
    ) -> AbstractContextManager[Session]:
        """A session in a running job: `{"argv": [...] or None, "terminal": ...}` or `{"port": 8888}`."""
        address = self._http.base_url.join(f"{url_path('jobs', job_id, 'session')}?rank={rank}")
        return open_session(f"ws{str(address)[4:]}", self._http.headers["Authorization"], request)

    # -- cluster -------------------------------------------------------------------------------------------------

    def nodes(
        self, *, state: str | None = None, health: str | None = None, gpu_type: str | None = None
    ) -> Iterator[Node]:
        return cast("Iterator[Node]", self._pages("nodes", {"state": state, "health": health, "gpu_type": gpu_type}))

    def node(self, name: str) -> Node:
        return cast("Node", self._json("GET", url_path("nodes", name)))

    def add_server(self, name: str) -> NewServer:
        """Make a join token for a server of the site: its agent joins with it. Administrators only."""
        return cast("NewServer", self._json("POST", "agents", json={"name": name, "site": True}))

    def servers(self) -> Iterator[Server]:
        """Servers of the site, by name. Administrators see all."""
        found = cast("Iterator[Server]", self._pages("agents", {}))
        return (one for one in found if one["site"])

    def server(self, name: str) -> Server:
        return cast("Server", self._json("GET", url_path("agents", name)))

    def revoke_server(self, name: str) -> None:
        """Revoke the token of a server, and its join token. Administrators only."""
        self._send("DELETE", url_path("agents", name))

    def update_server(self, name: str) -> Server:
        """Have a server try the update again that failed there. Administrators only."""
        return cast("Server", self._json("POST", url_path("agents", name, "update")))

    def cordon(self, name: str, *, reason: str) -> Node:
        """Start no new jobs on the node; running jobs continue. Administrators only."""
        return self._node_command("cordon", name, reason)

    def drain(self, name: str, *, reason: str) -> Node:
        """Start no new jobs on the node and move running jobs to other nodes. Administrators only."""
        return self._node_command("drain", name, reason)

    def resume(self, name: str, *, reason: str = "") -> Node:
        """Return a cordoned or drained node to service. Administrators only."""
        return self._node_command("resume", name, reason)

    def retire_node(self, name: str, *, reason: str) -> Node:
        """Retire a node without jobs: it is out of use for good, and stays in the history. Administrators only."""
        return self._node_command("retire", name, reason)

    def restore_node(self, name: str) -> Node:
        """Return a retired node to service, with the GPUs that it had. Administrators only."""
        return cast("Node", self._json("POST", url_path("nodes", name, "restore")))

    def gpu_types(self) -> Iterator[GpuType]:
        """GPU types with their figures and how many are free."""
        return cast("Iterator[GpuType]", self._pages("gpu-types", {}))

    def gpu_type(self, name: str) -> GpuType:
        return cast("GpuType", self._json("GET", url_path("gpu-types", name)))

    def retire_gpu_type(self, name: str) -> GpuType:
        """Retire a GPU type of which all nodes are retired: it is no longer offered. Administrators only."""
        return cast("GpuType", self._json("POST", url_path("gpu-types", name, "retire")))

    def restore_gpu_type(self, name: str) -> GpuType:
        """Offer a retired GPU type again. Administrators only."""
        return cast("GpuType", self._json("POST", url_path("gpu-types", name, "restore")))

    def storage(self) -> Iterator[Storage]:
        """Named storage, by engine and GPU type."""
        return cast("Iterator[Storage]", self._pages("storage", {}))

    def windows(self) -> Iterator[Window]:
        """Windows of nodes that go on or are to come: maintenance, and reservations of teams."""
        return cast("Iterator[Window]", self._pages("windows", {}))

    def add_window(self, fields: Spec) -> Window:
        """Add a window: `reason`, `begins_at`, `ends_at`, and `nodes` or `labels`, or `team`, `gpu_type` and `gpus`.

        Administrators only.
        """
        return cast("Window", self._json("POST", "windows", json=dict(fields)))

    def delete_window(self, window_id: int) -> None:
        """Delete a window; nodes that are drained for it return to service. Administrators only."""
        self._send("DELETE", url_path("windows", window_id))

    def throughputs(
        self, *, team: str | None = None, workload: str | None = None, gpu_type: str | None = None
    ) -> Iterator[Throughput]:
        """Measured throughput of each workload on each GPU type."""
        query = {"team": team, "workload": workload, "gpu_type": gpu_type}
        return cast("Iterator[Throughput]", self._pages("throughputs", query))

    def _node_command(self, command: str, name: str, reason: str) -> Node:
        return cast("Node", self._json("POST", url_path("nodes", name, command), json={"reason": reason}))

    # -- scheduling ----------------------------------------------------------------------------------------------

    def teams(self) -> Iterator[Team]:
        """Your teams; for administrators all teams."""
        return cast("Iterator[Team]", self._pages("teams", {}))

    def team(self, name: str) -> Team:
        return cast("Team", self._json("GET", url_path("teams", name)))

    def team_starts(self, name: str) -> TeamStarts:
        """Where the team's starts of seven days went: quantiles of each stage."""
        return cast("TeamStarts", self._json("GET", url_path("teams", name, "starts")))

    def retire_team(self, name: str) -> Team:
        """Retire a team without unfinished jobs: nothing can be submitted for it. Administrators only."""
        return cast("Team", self._json("POST", url_path("teams", name, "retire")))

    def restore_team(self, name: str) -> Team:
        """Let a retired team submit again. Administrators only."""
        return cast("Team", self._json("POST", url_path("teams", name, "restore")))

    def members(self, team: str) -> list[Member]:
        """Members of a team with what each uses, and former members whose jobs are the team's still."""
        return cast("list[Member]", self._json("GET", url_path("teams", team, "members"))["members"])

    def set_member(self, team: str, username: str, *, lead: bool | None = None) -> list[Member]:
        """Add a member, or change the role of one; None: it stays as it is. Leads of the team and administrators only.

        Returns all members.
        """
        answer = self._json("PUT", url_path("teams", team, "members", username), json=without_empty({"lead": lead}))
        return cast("list[Member]", answer["members"])

    def limit_members(self, team: str, *, max_gpus: int | None, idle_minutes: int | None) -> None:
        """Set the limits of each member; None: no limit. Leads of the team and administrators only."""
        limits = {"max_gpus_per_member": max_gpus, "idle_gpus_limit_min": idle_minutes}
        self._send("PUT", url_path("teams", team, "member-limits"), json=limits)

    def invite(self, team: str, username: str, *, email: str = "", lead: bool = False) -> Invitation:
        """Invite a person into a team: only this answer contains the link. Leads and administrators only."""
        body = {"username": username, "email": email, "lead": lead}
        return cast("Invitation", self._json("POST", url_path("teams", team, "invitations"), json=body))

    def remove_member(self, team: str, username: str) -> None:
        """Remove a member, whose jobs go on. Leads of the team and administrators only."""
        self._send("DELETE", url_path("teams", team, "members", username))

    def set_quota(
        self,
        team: str,
        gpu_type: str,
        gpus: int,
        *,
        borrowing_limit: int | None = None,
        lending_limit: int | None = None,
    ) -> Team:
        """Set the quota of a team on a GPU type; None: no limit. Administrators only."""
        limits = {"gpus": gpus, "borrowing_limit": borrowing_limit, "lending_limit": lending_limit}
        return cast("Team", self._json("PUT", url_path("teams", team, "quotas", gpu_type), json=limits))

    def delete_quota(self, team: str, gpu_type: str) -> None:
        self._send("DELETE", url_path("teams", team, "quotas", gpu_type))

    def set_budget(self, team: str, gpu_hours: float, *, period: str = "month", kind: str = "soft") -> Team:
        """Set the budget of a team, in reference GPU-hours per period. Administrators only."""
        budget = {"gpu_hours": gpu_hours, "period": period, "kind": kind}
        return cast("Team", self._json("PUT", url_path("teams", team, "budget"), json=budget))

    def delete_budget(self, team: str) -> None:
        self._send("DELETE", url_path("teams", team, "budget"))

    def usage(
        self, *, since: date | None = None, until: date | None = None, by: str = "month", team: str = ""
    ) -> UsageReport:
        """GPU hours and cost of your teams per `by` ("day" or "month") and GPU type; default: this month's."""
        query = without_empty({"since": since, "until": until, "by": by, "team": team or None})
        return cast("UsageReport", self._json("GET", "usage", params=query))

    def report(self, *, month: str | None = None, team: str = "") -> MonthlyReport:
        """What each of your teams had in a month ("2026-11"), by default this one."""
        query = without_empty({"month": month, "team": team or None})
        return cast("MonthlyReport", self._json("GET", "report", params=query))

    def history(
        self, *, since: datetime | None = None, until: datetime | None = None, anonymise: bool = False
    ) -> bytes:
        """Jobs of your teams that ran, as a trace for the simulator; default: those of the last seven days."""
        query = without_empty({"since": since, "until": until, "anonymise": "true" if anonymise else None})
        return self._send("GET", "history", params=query).content

    def simulate_policies(
        self,
        policies: Sequence[str],
        *,
        days: int | None = None,
        trace: str | None = None,
        trace_format: str | None = None,
        throughputs: str | None = None,
        round_length_s: float | None = None,
        nodes: Mapping[str, int] | None = None,
        team_weights: Mapping[str, float] | None = None,
        quotas: Sequence[Mapping[str, object]] | None = None,
        budgets: Sequence[Mapping[str, object]] | None = None,
    ) -> LabRun:
        """Ask for a run of the policy lab: your teams' jobs of the last days, or of a trace, under these policies.

        `trace` and `throughputs` are texts; the others are as in REST.
        """
        about = {"round_length_s": round_length_s, "nodes": nodes, "team_weights": team_weights}
        limits = {"quotas": quotas, "budgets": budgets}
        source = {"days": days, "trace": trace, "trace_format": trace_format, "throughputs": throughputs}
        asked = {"policies": list(policies), **without_empty(about), **without_empty(limits), **without_empty(source)}
        return cast("LabRun", self._json("POST", "lab/runs", json=asked))

    def lab_runs(self) -> Iterator[LabRun]:
        """Your runs of the policy lab without their results, newest first."""
        return cast("Iterator[LabRun]", self._pages("lab/runs", {}))

    def lab_run(self, number: int) -> LabRun:
        """One run of the policy lab, with its result once it is done."""
        return cast("LabRun", self._json("GET", url_path("lab", "runs", number)))

    def node_savings(self) -> NodeSavings:
        """Waiting that one more node of each GPU type would save, and one less cost, by prices and as simulated."""
        return cast("NodeSavings", self._json("GET", "lab/node-savings"))

    def cancel_lab_run(self, number: int) -> LabRun:
        return cast("LabRun", self._json("POST", url_path("lab", "runs", number, "cancel")))

    def preview_lab_policy(self, number: int, policy: str) -> LabPolicyPreview:
        """What the next round would do under a policy of the run, and what the lab predicted. Administrators only."""
        path = url_path("lab", "runs", number, "preview")
        return cast("LabPolicyPreview", self._json("POST", path, json={"policy": policy}))

    def apply_lab_policy(
        self,
        number: int,
        policy: str,
        *,
        note: str = "",
        guard_hours: float | None = None,
        undo_by_itself: bool = False,
    ) -> AppliedPolicy:
        """Use a policy of the run from the next round on, and watch its effects. Administrators only."""
        body = {"policy": policy, "note": note, "undo_by_itself": undo_by_itself}
        path = url_path("lab", "runs", number, "apply")
        return cast("AppliedPolicy", self._json("POST", path, json=without_empty(body | {"guard_hours": guard_hours})))

    def secrets(self) -> Iterator[Secret]:
        """Your secrets and those of your teams, without their values."""
        return cast("Iterator[Secret]", self._pages("secrets", {}))

    def set_secret(self, name: str, value: str, *, team: str | None = None) -> Secret:
        """Set a secret for your jobs or, with `team`, for those of the team; it replaces the value before."""
        return cast("Secret", self._json("POST", "secrets", json={"name": name, "value": value, "team": team}))

    def delete_secret(self, secret_id: int) -> None:
        """Delete a secret. Jobs that name it and have not started fail when they start."""
        self._send("DELETE", url_path("secrets", secret_id))

    def notification_targets(self) -> Iterator[NotificationTarget]:
        """Your targets of notifications and those of your teams, without what is secret in their addresses."""
        return cast("Iterator[NotificationTarget]", self._pages("notification-targets", {}))

    def add_notification_target(
        self, kind: str, address: str, events: Sequence[str], *, team: str | None = None
    ) -> NewNotificationTarget:
        """Add a target of yours or, with `team`, of that team, for its leads. Only this answer contains its key."""
        body = {"kind": kind, "address": address, "events": list(events), "team": team}
        return cast("NewNotificationTarget", self._json("POST", "notification-targets", json=body))

    def change_notification_target(self, target_id: int, events: Sequence[str]) -> NotificationTarget:
        """Change the events that a target is notified of."""
        path = url_path("notification-targets", target_id)
        return cast("NotificationTarget", self._json("PATCH", path, json={"events": list(events)}))

    def test_notification_target(self, target_id: int) -> None:
        """Send a target a test; `notifications` has what becomes of it."""
        self._send("POST", url_path("notification-targets", target_id, "test"))

    def delete_notification_target(self, target_id: int) -> None:
        """Delete a target, with its notifications."""
        self._send("DELETE", url_path("notification-targets", target_id))

    def notifications(self) -> Iterator[Notification]:
        """Notifications to the targets that you may see, newest first."""
        return cast("Iterator[Notification]", self._pages("notifications", {}))

    def resend_notification(self, notification_id: str) -> None:
        """Send a notification again that was given up."""
        self._send("POST", url_path("notifications", notification_id, "send"))

    def rounds(self, *, page_size: int | None = None) -> Iterator[Round]:
        """Scheduling rounds, newest first."""
        return cast("Iterator[Round]", self._pages("rounds", {"limit": page_size}))

    def round(self, number: int) -> RoundDetail:
        """One round with its decisions."""
        return cast("RoundDetail", self._json("GET", url_path("rounds", number)))

    def decisions(self, number: int) -> Iterator[Decision]:
        """The round's decision on each job that you may see."""
        return cast("Iterator[Decision]", self._pages(url_path("rounds", number, "decisions"), {}))

    def policies(self) -> Iterator[Policy]:
        """Available scheduling policies."""
        return cast("Iterator[Policy]", self._pages("policies", {}))

    def current_policy(self) -> ChosenPolicy:
        """The current policy with its parameters and round times."""
        return cast("ChosenPolicy", self._json("GET", "policies/current"))

    def policy_history(self) -> Iterator[ChosenPolicy]:
        """Policy settings so far, newest first."""
        return cast("Iterator[ChosenPolicy]", self._pages("policies/history", {}))

    def choose_policy(
        self,
        policy: str,
        *,
        parameters: Mapping[str, object] | None = None,
        round_length_s: float | None = None,
        min_run_s: float | None = None,
        solve_limit_part: float | None = None,
        cpu_memory: str | None = None,
        note: str | None = None,
    ) -> ChosenPolicy:
        """Use this policy from the next round on; what is not given stays as it is. Administrators only."""
        times = {"round_length_s": round_length_s, "min_run_s": min_run_s, "solve_limit_part": solve_limit_part}
        words = {"cpu_memory": cpu_memory, "note": note}
        body = without_empty({"policy": policy, "parameters": parameters, **words, **times})
        return cast("ChosenPolicy", self._json("PUT", "policies/current", json=body))

    def preview_policy(
        self,
        policy: str,
        *,
        parameters: Mapping[str, object] | None = None,
        round_length_s: float | None = None,
        min_run_s: float | None = None,
        solve_limit_part: float | None = None,
        cpu_memory: str | None = None,
    ) -> PolicyPreview:
        """The next round under this policy beside the next under the present one. Administrators only."""
        times = {"round_length_s": round_length_s, "min_run_s": min_run_s, "solve_limit_part": solve_limit_part}
        body = without_empty({"policy": policy, "parameters": parameters, "cpu_memory": cpu_memory, **times})
        return cast("PolicyPreview", self._json("POST", "policies/preview", json=body))

    def policy_guard(self) -> PolicyGuard:
        """Effects of the current policy compared with what the policy lab predicted; `none`: there is no prediction."""
        return cast("PolicyGuard", self._json("GET", "policies/guard"))

    def undo_policy(self, choice: int, *, note: str = "") -> ChosenPolicy:
        """Restore the settings before those with this id, if these are still the current ones. Administrators only."""
        path = url_path("policies", "history", choice, "undo")
        return cast("ChosenPolicy", self._json("POST", path, json={"note": note}))

    def choose_policy_again(self, choice: int) -> ChosenPolicy:
        """Restore the policy settings with this id of the history. Administrators only."""
        return cast("ChosenPolicy", self._json("POST", url_path("policies", "history", choice, "choose")))

    # -- account -------------------------------------------------------------------------------------------------

    def me(self) -> Me:
        """The user of this token, with teams and scope."""
        return cast("Me", self._json("GET", "me"))

    def tokens(self) -> Iterator[Token]:
        """Your API tokens."""
        return cast("Iterator[Token]", self._pages("tokens", {}))

    def token(self, token_id: int) -> Token:
        """One of your API tokens."""
        return cast("Token", self._json("GET", url_path("tokens", token_id)))

    def create_token(
        self,
        name: str,
        *,
        scope: str = Scope.SUBMIT,
        expires_in: str | None = None,
        expires_at: datetime | str | None = None,
    ) -> NewToken:
        """Create an API token that expires `in` 30d, `at` a time, or never. Only this answer contains its text."""
        body = without_empty({"name": name, "scope": str(scope), "expires_in": expires_in, "expires_at": expires_at})
        return cast("NewToken", self._json("POST", "tokens", json=body))

    def revoke_token(self, token_id: int) -> None:
        """Revoke one of your API tokens."""
        self._send("DELETE", url_path("tokens", token_id))


class _Again:
    """Body of a request that is sent from its beginning each time it is sent."""

    def __init__(self, chunks: Callable[[], Iterator[bytes]]) -> None:
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        return self._chunks()


def _of_recipe(parameters: Spec | None, changes: Spec | None, version: int | None) -> dict[str, object]:
    return without_empty({"parameters": dict(parameters or {}), "changes": dict(changes or {}), "version": version})


def _key(key: str | None) -> dict[str, str]:
    return {"Idempotency-Key": key or str(uuid.uuid4())}
