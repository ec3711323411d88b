"""Recurring jobs."""

from collections.abc import Iterator
from typing import cast

from motley_client.connection import Connection, Spec, url_path, with_key
from motley_client.responses import DueTime, JobDetail, RecurringJob, RecurringJobDetail


class RecurringJobRoutes(Connection):
    """Recurring jobs."""

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
        headers = with_key(idempotency_key)
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
        return cast("JobDetail", self._json("POST", path, headers=with_key(idempotency_key)))

    def delete_recurring_job(self, number: int) -> None:
        """Delete it, with the record of its due times; its jobs stay."""
        self._send("DELETE", url_path("recurring-jobs", number))
