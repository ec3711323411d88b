"""Waiting for jobs to end, and ceasing to: Ctrl-C ends the waiting, and nothing else."""

from collections.abc import Sequence
from typing import NoReturn

import typer

from motley_client.answers import Job, JobInFull
from motley_client.client import Client
from motley_client.completion import JobArguments
from motley_client.inert import inert
from motley_client.lookup import connect, find_job
from motley_client.tables.jobs import gpus, why
from motley_client.terminal import warn

DETACHED = 130
"""What a shell says of a program ended by Ctrl-C. Not 0: how the job ends is not known."""


def wait(context: typer.Context, jobs: JobArguments) -> None:
    """Wait for jobs to end. The exit code is the job's; of several, that of the first that did not succeed."""
    with connect(context) as client:
        ended = wait_for_all(client, [find_job(client, typed) for typed in jobs])
    raise typer.Exit(exit_code_of(ended))


def wait_for_all(client: Client, jobs: Sequence[Job]) -> list[JobInFull]:
    """The finished jobs; meanwhile what becomes of them is said."""
    try:
        return [_wait_for(client, job) for job in jobs]
    except KeyboardInterrupt:
        detach(jobs)


def exit_code_of(ended: Sequence[Job]) -> int:
    """That of the first job that did not succeed: its own, or 1 where it has none."""
    return next((job["exit_code"] or 1 for job in ended if job["state"] != "succeeded"), 0)


def detach(jobs: Sequence[Job]) -> NoReturn:
    """Leave, and say that the jobs do not."""
    one, many = jobs[0], len(jobs) > 1
    warn(f"\nDetached: {'the jobs go on' if many else inert(one['name']) + ' goes on'}.")
    warn(f"  motley logs -f {one['id']}   follow {'the first' if many else 'it again'}")
    ids = " ".join(job["id"] for job in jobs)
    warn(f"  motley cancel  {ids}   cancel {'them' if many else 'it'}")
    raise typer.Exit(DETACHED)


class News:
    """Says what becomes of a job, each thing once."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, job: Job) -> None:
        said = news_of(job)
        if said != self._last:
            warn(said)
        self._last = said


def news_of(job: Job) -> str:
    """`resnet: queued. needs 8 GPUs, 3 are free`, `resnet: running on 4 a100.`"""
    state = "held" if job["held"] else job["state"]
    where = f" on {gpus(job)}" if job["gpu_type"] else ""
    return inert(f"{job['name']}: {state}{where}. {why(job)}").rstrip()


def _wait_for(client: Client, job: Job) -> JobInFull:
    news = News()
    ended = client.wait(job["id"], look=news)
    news(ended)
    return ended
