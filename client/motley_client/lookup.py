"""From what was typed to the service and to one job."""

from collections.abc import Sequence
from itertools import islice
from uuid import UUID

import typer

from motley_client.answers import FINAL_STATES, Job
from motley_client.client import Client
from motley_client.configuration import configuration
from motley_client.errors import NotFound

MOST_CANDIDATES = 200


class AmbiguousJob(Exception):
    """Several jobs answer to what was typed."""

    def __init__(self, typed: str, candidates: Sequence[Job]) -> None:
        super().__init__(f"{typed} is ambiguous: give an id, or more of it.")
        self.candidates = candidates


def connect(context: typer.Context) -> Client:
    """The client for the service that the options, the environment or the file name."""
    chosen = configuration(**context.obj)
    return Client(chosen.url, chosen.token)


def find_job(client: Client, typed: str) -> Job:
    """The one job with this id, this name, or an id or a name that begins like this."""
    if _is_id(typed):
        return client.job(typed)
    found = list(islice(client.jobs(q=typed), MOST_CANDIDATES))
    if not found:
        raise NotFound(f"No job has a name or an id that begins with {typed}.")
    return _the_one(typed, found)


def _the_one(typed: str, found: Sequence[Job]) -> Job:
    named = [job for job in found if job["name"] == typed]
    # A name is used again run after run: while one of them goes on, that is the one meant.
    active = [job for job in named if job["state"] not in FINAL_STATES]
    for jobs in (found, named, active):
        if len(jobs) == 1:
            return jobs[0]
    raise AmbiguousJob(typed, active or named or found)


def _is_id(typed: str) -> bool:
    try:
        return str(UUID(typed)) == typed.lower()
    except ValueError:
        return False
