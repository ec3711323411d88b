"""The `motley logs` command."""

from typing import Annotated, Any

import typer

from motley_client.client import Client
from motley_client.commands.wait import StatusPrinter, status_line
from motley_client.completion import JobArgument
from motley_client.lookup import connect, find_job
from motley_client.responses import Job
from motley_client.terminal import sanitized, warn, write_log


def logs(
    context: typer.Context,
    job: JobArgument,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until the job has finished.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", "-t", "-n", min=1, help="Only this number of lines from the end.")
    ] = None,
    stream: Annotated[str, typer.Option(help="stdout, stderr, or setup.", metavar="STREAM")] = "stdout",
    rank: Annotated[int, typer.Option(min=0, help="Rank of the node within the gang.")] = 0,
    attempt: Annotated[int | None, typer.Option(min=1, help="Number of the attempt. Default: the latest.")] = None,
) -> None:
    """Print the log of a job. With --follow, Ctrl-C stops following; the job continues."""
    with connect(context) as client:
        found = find_job(client, job)
        which: dict[str, Any] = {"stream": stream, "rank": rank, "tail": tail, "attempt": attempt}
        if follow:
            _follow(client, found, which)
            return
        write_log(client.read_logs(found["id"], **which))
        job_now = client.job(found["id"])
        if not job_now["attempts"]:
            warn(f"No log yet. {status_line(found)}")
        elif job_now["state"] == "failed" and stream == "stdout":
            failed = "setup" if "setup failed" in job_now["message"] else "stderr"
            warn(f"The job failed. For error messages: motley logs --stream {failed} {found['id']}")


def _follow(client: Client, job: Job, which: dict[str, Any]) -> None:
    try:
        write_log(client.follow_logs(job["id"], **which, on_wait=StatusPrinter()))
        warn(status_line(client.job(job["id"])))
    except KeyboardInterrupt:
        warn(f"\nDetached: {sanitized(job['name'])} continues.")
        warn(f"  motley logs -f {job['id']}   resume following")
        warn(f"  motley cancel  {job['id']}   cancel it")
