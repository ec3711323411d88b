"""The connection, and the job or token that a command-line argument names."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import typer

from motley_client.client import Client
from motley_client.errors import NotFound
from motley_client.responses import ACTIVE_STATES, Job, Recipe, RecurringJob, Sweep, Token
from motley_command.configuration import configuration
from motley_command.tables.jobs import display_name

MAX_CANDIDATES = 200
MOST_NAMESAKES = 10
"""Arrays of one name that are listed."""
FIELDS_OF_NAMESAKES = ("id", "name", "array", "team", "created_at")
IN_BATCH = re.compile(r"#\d+")
"""Reference to an earlier job of the same batch."""


class AmbiguousJob(Exception):
    """Several jobs match the argument."""

    def __init__(self, typed: str, candidates: Sequence[Job]) -> None:
        of_one_array = len({job["array"] for job in candidates}) == 1 and candidates[0]["array"]
        said = (
            f"an array: give one of its tasks, e.g. {display_name(candidates[0])}."
            if of_one_array
            else "ambiguous: give an id."
        )
        super().__init__(f"{typed} is {said}")
        self.candidates = candidates


class AmbiguousArray(Exception):
    """Several arrays, or an array and jobs that are not of it, have this name; `newest` has one job of each."""

    def __init__(self, typed: str, newest: Sequence[Job]) -> None:
        super().__init__(f"{typed} is the name of several arrays or jobs: give the id of one.")
        self.newest = newest


class AmbiguousToken(Exception):
    """Several tokens match the argument."""


class AmbiguousName(Exception):
    """Several teams have a recurring job, a sweep or a recipe of this name."""


class Kind(NamedTuple):
    """What has a name in a team: in words, and the group of commands about it."""

    noun: str
    group: str


RECURRING, SWEEP, RECIPE = Kind("recurring job", "recurring"), Kind("sweep", "sweep"), Kind("recipe", "recipe")
OfTeam = TypeVar("OfTeam", RecurringJob, Sweep, Recipe)


def connect(context: typer.Context) -> Client:
    """A client for the service that is configured by options, environment or file."""
    chosen = configuration(**context.obj)
    return Client(chosen.url, chosen.token)


def find_job(client: Client, typed: str) -> Job:
    """The job with this id or name, or the only one whose name begins with it, or whose id begins or ends with it.

    A task of an array is `NAME[INDEX]`.
    """
    return client.job(typed) if _is_id(typed) else _unambiguous(typed, _candidates(client, typed))


def find_jobs(client: Client, typed: str) -> list[Job]:
    """The job, or every task of the array with this name or id, the first one first."""
    if array := array_named(client, typed):
        return sorted(client.jobs(array=array, page_size=200), key=lambda job: job["array_index"] or 0)
    return [find_job(client, typed)]


def array_named(client: Client, typed: str) -> str | None:
    """Id of the array that is meant; of arrays with the same name the one that goes on.

    Raises `AmbiguousArray` if that is not one.
    """
    if _is_id(typed):
        return typed if next(client.jobs(array=typed, page_size=1), None) else None
    for states in (ACTIVE_STATES, ()):
        named = client.jobs(name=typed, state=states, fields=FIELDS_OF_NAMESAKES, page_size=200)
        newest = list(islice(_one_of_each_array(job for job in named if job["name"] == typed), MOST_NAMESAKES))
        if len(newest) > 1 and any(job["array"] for job in newest):
            raise AmbiguousArray(typed, newest)
        if newest:
            return newest[0]["array"]
    return None


def _one_of_each_array(jobs: Iterable[Job]) -> Iterator[Job]:
    """The first job of each array, and of those of none: of two arrays, the newer one may have thousands of tasks."""
    seen: set[str | None] = set()
    for job in jobs:
        if job["array"] not in seen:
            seen.add(job["array"])
            yield job


def _candidates(client: Client, typed: str) -> list[Job]:
    """Jobs of exactly this name, else the newest whose name begins so or whose id begins or ends so.

    Names are reused from run to run: the active job is meant, if there is one, however many newer ones there are.
    """
    if typed:
        for states in (ACTIVE_STATES, ()):
            if named := list(islice(client.jobs(name=typed, state=states, page_size=200), MAX_CANDIDATES)):
                return named
    found = islice(client.jobs(q=_searchable(typed), page_size=200), MAX_CANDIDATES)
    return [job for job in found if _matches(job, typed)]


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


def find_recurring_job(client: Client, typed: str, team: str | None) -> RecurringJob:
    """The recurring job with this name, in this team if several have one; else that with this number."""
    return _find_named(RECURRING, typed, client.recurring_jobs(name=typed, team=team), client.recurring_job)


def find_sweep(client: Client, typed: str, team: str | None) -> Sweep:
    """The sweep with this name, in this team if several have one; else that with this number."""
    return _find_named(SWEEP, typed, client.sweeps(name=typed, team=team), client.sweep)


def find_recipe(client: Client, typed: str, team: str | None) -> Recipe:
    """The recipe with this name, in this team if several have one; else that with this number."""
    return _find_named(RECIPE, typed, client.recipes(name=typed, team=team), client.recipe)


def _find_named(kind: Kind, typed: str, named: Iterable[OfTeam], numbered: Callable[[int], OfTeam]) -> OfTeam:
    """The one that has the name; if none has it, the one with this number."""
    found = list(named)
    if len(found) > 1:
        raise AmbiguousName(f"{typed} is in {', '.join(one['team'] for one in found)}: give --team.")
    if not found and typed.isdecimal():
        return numbered(int(typed))
    if not found:
        raise NotFound(f"No {kind.noun} named {typed}: see motley {kind.group} list.")
    return found[0]


def _has_prefix(prefix: str, typed: str) -> bool:
    return len(typed) >= len(prefix) and typed.startswith(prefix)


def _id_of(client: Client, typed: str) -> str:
    try:
        return typed if IN_BATCH.fullmatch(typed) else find_job(client, typed)["id"]
    except NotFound as error:
        raise NotFound(f"after: {error}") from error


def _searchable(typed: str) -> str | None:
    """The argument, or its beginning: in what the service searches for a word with `=` is a tag."""
    whole = " ".join(typed.split())
    if "=" not in typed and whole == typed:
        return typed or None
    return re.match(r"[^\s=]*", typed)[0] or None  # type: ignore[index]  # the pattern also matches an empty text


def _matches(job: Job, typed: str) -> bool:
    digits, of_job = typed.lower().replace("-", ""), job["id"].replace("-", "")
    return display_name(job).startswith(typed) or of_job.startswith(digits) or of_job.endswith(digits)


def _unambiguous(typed: str, found: Sequence[Job]) -> Job:
    if not found:
        raise NotFound(f"No job named {typed}.")
    if len(found) > 1:
        raise AmbiguousJob(typed, found)
    return found[0]


def _is_id(typed: str) -> bool:
    try:
        return str(UUID(typed)) == typed.lower()
    except ValueError:
        return False
