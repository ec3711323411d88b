"""What jobs have written."""

from typing import Annotated, Any

import typer

from motley_client.answers import Job
from motley_client.client import Client
from motley_client.commands.waiting import News, news_of
from motley_client.completion import JobArgument
from motley_client.inert import inert
from motley_client.lookup import connect, find_job
from motley_client.terminal import warn, write_log


def logs(
    context: typer.Context,
    job: JobArgument,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until the job has finished.")] = False,
    tail: Annotated[int | None, typer.Option("--tail", "-t", min=1, help="Only so many lines of the end.")] = None,
    stream: Annotated[str, typer.Option(help="stdout or stderr.", metavar="STREAM")] = "stdout",
    rank: Annotated[int, typer.Option(min=0, help="Of the node within the gang.")] = 0,
    attempt: Annotated[int | None, typer.Option(min=1, help="Default: the latest.")] = None,
) -> None:
    """Print what a job has written. Ctrl-C while following detaches and never cancels."""
    with connect(context) as client:
        found = find_job(client, job)
        which: dict[str, Any] = {"stream": stream, "rank": rank, "tail": tail, "attempt": attempt}
        if follow:
            _follow(client, found, which)
            return
        write_log(client.read_logs(found["id"], **which))
        job_now = client.job(found["id"])
        if not job_now["attempts"]:
            warn(f"It has written nothing yet. {news_of(found)}")
        elif job_now["state"] == "failed" and stream == "stdout":
            warn(f"It failed. What it said of that may be in motley logs --stream stderr {found['id']}")


def _follow(client: Client, job: Job, which: dict[str, Any]) -> None:
    try:
        write_log(client.follow_logs(job["id"], **which, waiting=News()))
        warn(news_of(client.job(job["id"])))
    except KeyboardInterrupt:
        warn(f"\nDetached: {inert(job['name'])} goes on.")
        warn(f"  motley logs -f {job['id']}   follow it again")
        warn(f"  motley cancel  {job['id']}   cancel it")
