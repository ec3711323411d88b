"""Tables of recurring jobs and their due times."""

from collections.abc import Iterable, Sequence
from datetime import datetime

import yaml
from rich.console import Group, RenderableType

from motley_client.responses import DueTime, RecurringJob
from motley_command.tables.format import Cell, key_values, lines_of, local_minute, table, until


def recurring_jobs_table(found: Iterable[RecurringJob], *, now: datetime) -> RenderableType:
    rows = [
        (
            one["name"],
            one["team"],
            f"{one['schedule']} {one['timezone']}",
            "paused" if one["paused_at"] else until(one["next_due_at"], now) if one["next_due_at"] else "never",
            _last(one["last_run"]),
            one["paused_because"] or (one["last_run"]["message"] if one["last_run"] else ""),
        )
        for one in found
    ]
    headings = ("NAME", "TEAM", "SCHEDULE", "NEXT", "LAST", "NOTE")
    return table(headings, rows, empty="No recurring jobs: motley recurring create job.yaml --schedule '0 3 * * *'.")


def recurring_job_details(one: RecurringJob, runs: Sequence[DueTime]) -> RenderableType:
    due = local_minute(one["next_due_at"]) if one["next_due_at"] else ""
    facts: list[tuple[str, Cell]] = [
        ("name", one["name"]),
        ("id", str(one["id"])),
        ("team", one["team"]),
        ("owner", one["owner"]),
        ("schedule", f"{one['schedule']} {one['timezone']}"),
        ("concurrency", one["concurrency"]),
        ("missed", one["missed"]),
        ("next", f"paused: {one['paused_because']}" if one["paused_at"] else due),
        ("spec", lines_of(yaml.safe_dump(one["spec"], sort_keys=False).rstrip())),
    ]
    rows = [(local_minute(run["due_at"]), _last(run), run["job"] or "", run["message"]) for run in runs]
    due_times = table(("DUE", "OUTCOME", "JOB", "NOTE"), rows, empty="No due time has come yet.")
    return Group(key_values(facts), "", due_times)


def _last(run: DueTime | None) -> str:
    """State of its job, or why there is none."""
    return (run["state"] or run["outcome"]) if run else ""
