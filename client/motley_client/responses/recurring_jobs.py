"""Recurring jobs and their due times."""

from typing import Any, TypedDict


class DueTime(TypedDict):
    """A due time of a recurring job, and what became of it; `job` and `state` only if it was submitted."""

    due_at: str
    at: str
    outcome: str
    job: str | None
    state: str
    message: str


class RecurringJob(TypedDict):
    """A spec with a schedule, in lists; `next_due_at` is null while it is paused."""

    id: int
    name: str
    team: str
    owner: str
    schedule: str
    timezone: str
    concurrency: str
    missed: str
    spec: dict[str, Any]
    next_due_at: str | None
    paused_at: str | None
    paused_because: str
    created_at: str
    changed_at: str
    last_run: DueTime | None


class RecurringJobDetail(RecurringJob):
    """One recurring job; send its `etag` as `if_match` with a change."""

    etag: str
