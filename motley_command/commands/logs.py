"""The `motley logs` command."""

from typing import Annotated, Any

import typer

from motley_client.client import Client
from motley_client.responses import Job, JobDetail
from motley_command.commands.wait import StatusPrinter, status_line
from motley_command.completion import JobArgument
from motley_command.lookup import connect, find_job
from motley_command.tables.jobs import failed_in_setup
from motley_command.terminal import sanitized, warn, write_lines, write_log

MERGED = "all"


def logs(
    context: typer.Context,
    job: JobArgument,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until the job has finished.")] = False,
    tail: Annotated[
        int | None,
        typer.Option("--tail", "-t", "-n", min=1, max=100_000, help="Only this number of lines from the end."),
    ] = None,
    stream: Annotated[
        str, typer.Option(help="all, by time; or the bytes of stdout, stderr, or setup.", metavar="STREAM")
    ] = MERGED,
    rank: Annotated[
        int | None, typer.Option(min=0, help="Rank of the node within the gang. Default: all; of one stream, 0.")
    ] = None,
    attempt: Annotated[int | None, typer.Option(min=1, help="Number of the attempt. Default: the latest.")] = None,
) -> None:
    """Print the log of a job: both streams and all ranks, by time. With --follow, Ctrl-C stops following.

    Lines of gangs begin with their [rank]; a line longer than 64 KiB is cut. With --stream, the log has the bytes that
    the job wrote.
    """
    with connect(context) as client:
        found = find_job(client, job)
        which: dict[str, Any] = {"stream": stream, "tail": tail, "attempt": attempt}
        if follow:
            _follow(client, found, which, rank)
            return
        if stream == MERGED:
            lines = client.log_lines(found["id"], **which, rank=rank)
            write_lines(lines, have_ranks=lambda: rank is None and _is_gang(client.job(found["id"]), attempt))
        else:
            write_log(client.read_logs(found["id"], **which, rank=rank or 0))
        _say_what_is_missing(client, found, stream)


def _say_what_is_missing(client: Client, found: Job, stream: str) -> None:
    job = client.job(found["id"])
    if not job["attempts"]:
        warn(f"No log yet. {status_line(found)}")
    elif failed_in_setup(job) and stream != "setup":
        warn(f"The setup failed. For its log: motley logs --stream setup {found['id']}")
    elif job["state"] == "failed" and stream == "stdout":
        warn(f"The job failed. For error messages: motley logs --stream stderr {found['id']}")


def _is_gang(job: JobDetail, attempt: int | None) -> bool:
    """Whether the attempt, by default the latest, has several nodes."""
    asked = [one for one in job["attempts"] if attempt in (None, one["number"])]
    return bool(asked) and len(asked[-1]["nodes"]) > 1


def _follow(client: Client, job: Job, which: dict[str, Any], rank: int | None) -> None:
    try:
        if which["stream"] == MERGED:
            lines = client.follow_log_lines(job["id"], **which, rank=rank, on_wait=StatusPrinter())
            write_lines(lines, have_ranks=lambda: rank is None and _is_gang(client.job(job["id"]), which["attempt"]))
        else:
            write_log(client.follow_logs(job["id"], **which, rank=rank or 0, on_wait=StatusPrinter()))
        warn(status_line(client.job(job["id"])))
    except KeyboardInterrupt:
        warn(f"\nDetached: {sanitized(job['name'])} continues.")
        warn(f"  motley logs -f {job['id']}   resume following")
        warn(f"  motley cancel  {job['id']}   cancel it")
