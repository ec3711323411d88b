"""From what was typed to the service, and to one job or token of it."""

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any
from uuid import UUID

import typer

from motley_client.answers import FINAL_STATES, Job, Token
from motley_client.client import Client
from motley_client.configuration import configuration
from motley_client.errors import NotFound

MOST_CANDIDATES = 200
IN_BATCH = re.compile(r"#\d+")
"""How a job of a batch names an earlier one."""


class AmbiguousJob(Exception):
    """Several jobs answer to what was typed."""

    def __init__(self, typed: str, candidates: Sequence[Job]) -> None:
        super().__init__(f"{typed} is ambiguous: give an id, or more of it.")
        self.candidates = candidates


class AmbiguousToken(Exception):
    """Several tokens answer to what was typed."""


def connect(context: typer.Context) -> Client:
    """The client for the service that the options, the environment or the file name."""
    chosen = configuration(**context.obj)
    return Client(chosen.url, chosen.token)


def find_job(client: Client, typed: str) -> Job:
    """The one job with this id, this name, or an id or a name that begins like this."""
    if _is_id(typed):
        return client.job(typed)
    found = [
        job for job in islice(client.jobs(q=_searchable(typed), page_size=200), MOST_CANDIDATES) if _is(job, typed)
    ]
    if not found:
        raise NotFound(f"No job has a name, or an id of which this is eight digits or more, that begins with {typed}.")
    return _the_one(typed, found)


def with_ids(client: Client, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec, in which the jobs that it waits for are ids, however they were typed."""
    after = spec.get("after")
    if not isinstance(after, list) or not all(isinstance(need, dict) and "job" in need for need in after):
        return dict(spec)
    return {**spec, "after": [{**need, "job": _id_of(client, str(need["job"]))} for need in after]}


def find_token(client: Client, typed: str) -> Token:
    """The one token with this number or name, or one whose text begins like this; of several the one in use."""
    found = [one for one in client.tokens() if typed in {str(one["id"]), one["name"]} or _begins(one["prefix"], typed)]
    in_use = [token for token in found if not token["revoked_at"]]
    for tokens in (found, in_use):
        if len(tokens) == 1:
            return tokens[0]
    if not found:
        raise NotFound(f"You have no token with the number or the name {typed}; motley token list shows them.")
    raise AmbiguousToken(f"{typed} is ambiguous: give the number, which motley token list shows.")


def _begins(prefix: str, typed: str) -> bool:
    return len(typed) >= len(prefix) and typed.startswith(prefix)


def _id_of(client: Client, typed: str) -> str:
    try:
        return typed if IN_BATCH.fullmatch(typed) else find_job(client, typed)["id"]
    except NotFound as error:
        raise NotFound(f"after: {typed}: {error}") from error


def _searchable(typed: str) -> str | None:
    """The service searches by words and tags; a name may have spaces and equal signs in it."""
    return re.match(r"[^\s=]*", typed)[0] or None  # type: ignore[index]  # it matches at least nothing


def _is(job: Job, typed: str) -> bool:
    return job["name"].startswith(typed) or job["id"].replace("-", "").startswith(typed.lower().replace("-", ""))


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
