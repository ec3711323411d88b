"""The `motley wait` command, and waiting for submitted jobs. Ctrl-C stops waiting and cancels nothing."""

from collections.abc import Sequence
from typing import NoReturn

import typer

from motley_client.client import Client
from motley_client.responses import Job, JobDetail
from motley_command.completion import JobArguments
from motley_command.lookup import connect, find_jobs
from motley_command.tables.jobs import display_name, gpus, reason_of
from motley_command.terminal import sanitized, warn

DETACHED = 130
"""Exit code of a program that Ctrl-C ended (128 + SIGINT). Not 0: the outcome of the job is not known."""


def wait(context: typer.Context, jobs: JobArguments) -> None:
    """Wait until jobs have finished. Exits with the job's exit code, or that of the first job that did not succeed."""
    with connect(context) as client:
        ended = wait_for_all(client, [job for typed in jobs for job in find_jobs(client, typed)])
    raise typer.Exit(exit_code_of(ended))


def wait_for_all(client: Client, jobs: Sequence[Job]) -> list[JobDetail]:
    """Wait for the jobs, print every change of status on stderr, and return them finished."""
    try:
        return [_wait_for(client, job) for job in jobs]
    except KeyboardInterrupt:
        detach(jobs)


def exit_code_of(ended: Sequence[Job]) -> int:
    """Exit code of the first job that did not succeed, 1 if it has none; 0 if all succeeded."""
    return next((job["exit_code"] or 1 for job in ended if job["state"] != "succeeded"), 0)


def detach(jobs: Sequence[Job]) -> NoReturn:
    """Stop waiting, say that the jobs continue, and exit."""
    one, many = jobs[0], len(jobs) > 1
    warn(f"\nDetached: {'the jobs continue' if many else sanitized(one['name']) + ' continues'}.")
    warn(f"  motley logs -f {one['id']}   follow {'the first one' if many else 'its log'}")
    ids = " ".join(job["id"] for job in jobs)
    warn(f"  motley cancel  {ids}   cancel {'them' if many else 'it'}")
    raise typer.Exit(DETACHED)


class StatusPrinter:
    """Print a job's status on stderr whenever it changes."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, job: Job) -> None:
        line = status_line(job)
        if line != self._last:
            warn(line)
        self._last = line


def status_line(job: Job) -> str:
    """State of a job in one line: `resnet: queued. needs 8 GPUs, 3 are free`, `resnet: running on 4 a100.`"""
    state = "held" if job["held"] else job["state"]
    where = f" on {gpus(job)}" if job["gpu_type"] else ""
    return sanitized(f"{display_name(job)}: {state}{where}. {reason_of(job)}").rstrip()


def _wait_for(client: Client, job: Job) -> JobDetail:
    print_status = StatusPrinter()
    ended = client.wait(job["id"], on_poll=print_status)
    print_status(ended)
    return ended
