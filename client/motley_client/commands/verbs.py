"""What is done to jobs, one after the other: one that it cannot be done to does not keep the others from it."""

from collections.abc import Callable, Sequence
from typing import NoReturn

import typer

from motley_client.answers import JobInFull
from motley_client.client import Client
from motley_client.completion import JobArguments
from motley_client.failures import EXPECTED, explain
from motley_client.inert import inert
from motley_client.lookup import connect, find_job
from motley_client.terminal import say

Verb = Callable[[Client, str], JobInFull]


def cancel(context: typer.Context, jobs: JobArguments) -> None:
    """Cancel jobs: at once if they wait, else gracefully, then for certain."""
    _each(context, jobs, Client.cancel)


def hold(context: typer.Context, jobs: JobArguments) -> None:
    """Keep jobs in the queue; those that run are requeued gracefully first."""
    _each(context, jobs, Client.hold)


def release(context: typer.Context, jobs: JobArguments) -> None:
    """Let held jobs be scheduled again."""
    _each(context, jobs, Client.release)


def requeue(context: typer.Context, jobs: JobArguments) -> None:
    """Stop running jobs gracefully, and put them back in the queue."""
    _each(context, jobs, Client.requeue)


def _each(context: typer.Context, jobs: Sequence[str], verb: Verb) -> NoReturn:
    with connect(context) as client:
        codes = [_one(client, typed, verb) for typed in jobs]
    raise typer.Exit(next(filter(None, codes), 0))


def _one(client: Client, typed: str, verb: Verb) -> int:
    try:
        job = verb(client, find_job(client, typed)["id"])
    except EXPECTED as error:
        return explain(error)
    say(f"{inert(job['name'])} ({job['id']}): {'held' if job['held'] else job['state']}")
    return 0
