"""The connection, and the job or token that a command-line argument names."""

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any
from uuid import UUID

import typer

from motley_client.client import Client
from motley_client.configuration import configuration
from motley_client.errors import NotFound
from motley_client.responses import FINAL_STATES, Job, Token

MAX_CANDIDATES = 200
IN_BATCH = re.compile(r"#\d+")
"""Reference to an earlier job of the same batch."""


class AmbiguousJob(Exception):
    """Several jobs match the argument."""

    def __init__(self, typed: str, candidates: Sequence[Job]) -> None:
        super().__init__(f"{typed} is ambiguous: give the id, or more digits of it.")
        self.candidates = candidates


class AmbiguousToken(Exception):
    """Several tokens match the argument."""


def connect(context: typer.Context) -> Client:
    """A client for the service that is configured by options, environment or file."""
    chosen = configuration(**context.obj)
    return Client(chosen.url, chosen.token)


def find_job(client: Client, typed: str) -> Job:
    """The job with this id or name, or the only one whose id or name begins with the argument."""
    if _is_id(typed):
        return client.job(typed)
    candidates = islice(client.jobs(q=_searchable(typed), page_size=200), MAX_CANDIDATES)
    found = [job for job in candidates if _matches(job, typed)]
    if not found:
        raise NotFound(f"No job named {typed}.")
    return _unambiguous(typed, found)


def with_ids(client: Client, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with its dependencies (`after`) given as ids instead of names or parts of ids."""
    after = spec.get("after")
    if not isinstance(after, list) or not all(isinstance(need, dict) and "job" in need for need in after):
        return dict(spec)
    return {**spec, "after": [{**need, "job": _id_of(client, str(need["job"]))} for need in after]}


def find_token(client: Client, typed: str) -> Token:
    """The token with this id, name or prefix; of several, the one that is not revoked."""
    found = [
        one for one in client.tokens() if typed in {str(one["id"]), one["name"]} or _has_prefix(one["prefix"], typed)
    ]
    in_use = [token for token in found if not token["revoked_at"]]
    for tokens in (found, in_use):
        if len(tokens) == 1:
            return tokens[0]
    if not found:
        raise NotFound(f"No token with the id or name {typed}: see motley token list.")
    raise AmbiguousToken(f"{typed} is ambiguous: give the id of the token, from motley token list.")


def _has_prefix(prefix: str, typed: str) -> bool:
    return len(typed) >= len(prefix) and typed.startswith(prefix)


def _id_of(client: Client, typed: str) -> str:
    try:
        return typed if IN_BATCH.fullmatch(typed) else find_job(client, typed)["id"]
    except NotFound as error:
        raise NotFound(f"after: {error}") from error


def _searchable(typed: str) -> str | None:
    """First word of the argument: the service searches by words and tags, and a name may have spaces or `=` in it."""
    return re.match(r"[^\s=]*", typed)[0] or None  # type: ignore[index]  # the pattern also matches an empty text


def _matches(job: Job, typed: str) -> bool:
    return job["name"].startswith(typed) or job["id"].replace("-", "").startswith(typed.lower().replace("-", ""))


def _unambiguous(typed: str, found: Sequence[Job]) -> Job:
    named = [job for job in found if job["name"] == typed]
    # Names are reused from run to run: the active job is meant, if there is one.
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
