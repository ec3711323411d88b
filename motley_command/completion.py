"""Shell completion of jobs, nodes, teams, tokens, recipes, sweeps and other names: quick, silent on every error."""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Annotated

import typer

from motley_client.client import Client
from motley_client.responses import ACTIVE_STATES
from motley_command.configuration import configuration

TIMEOUT_S = 1.5
MAX_CANDIDATES = 50
PLAIN = re.compile(r"[\w.+@%-]+")
"""Names without characters special to a shell; of jobs with other names the id is offered."""
ID_BEGINS = re.compile(r"[0-9a-f]{4,8}(-[0-9a-f-]*)?|[0-9a-f]{8,}")

Candidate = tuple[str, str]
"""A word and its explanation."""
Complete = Callable[[typer.Context, str], list[Candidate]]


def completer(candidates: Callable[[Client, str], Iterator[Candidate]]) -> Complete:
    """A typer completion that queries the service and offers nothing if that fails."""

    def complete(context: typer.Context, incomplete: str) -> list[Candidate]:
        options = context.find_root().params
        try:
            chosen = configuration(url=options.get("url"), token=options.get("token"))
            with Client(chosen.url, chosen.token, timeout_s=TIMEOUT_S, retries=0) as client:
                return [
                    one
                    for one in islice(candidates(client, incomplete), MAX_CANDIDATES)
                    if one[0].startswith(incomplete)
                ]
        except Exception:  # a traceback would garble the line that is being typed
            return []

    return complete


def _jobs(client: Client, incomplete: str) -> Iterator[Candidate]:
    fields = ("id", "name", "state")
    by_id = ID_BEGINS.fullmatch(incomplete)
    for job in client.jobs(q=incomplete or None, fields=fields, page_size=MAX_CANDIDATES):
        if PLAIN.fullmatch(job["name"]):
            yield job["name"], f"{job['state']} {job['id']}"
        if by_id or not PLAIN.fullmatch(job["name"]):
            yield job["id"], job["state"]


def _active_jobs(client: Client, incomplete: str) -> Iterator[Candidate]:
    for job in client.jobs(
        state=ACTIVE_STATES, q=incomplete or None, fields=("id", "name", "state"), page_size=MAX_CANDIDATES
    ):
        plain = PLAIN.fullmatch(job["name"]) and job["name"].startswith(incomplete)
        yield (job["name"] if plain else job["id"]), job["state"]


def _nodes(client: Client, incomplete: str) -> Iterator[Candidate]:
    return ((node["name"], f"{node['gpus']} {node['gpu_type']}, {node['state']}") for node in client.nodes())


def _gpu_types(client: Client, incomplete: str) -> Iterator[Candidate]:
    return ((kind["name"], f"{kind['free_gpus']} of {kind['gpus']} free") for kind in client.gpu_types())


def _storage(client: Client, incomplete: str) -> Iterator[Candidate]:
    places: dict[str, list[str]] = {}
    for one in client.storage():
        places.setdefault(one["name"], []).append(one["engine"] + (f" {one['gpu_type']}" if one["gpu_type"] else ""))
    return ((name, f"on {', '.join(engines)}") for name, engines in places.items())


def _teams(client: Client, incomplete: str) -> Iterator[Candidate]:
    return ((team["name"], f"weight {team['weight']:g}") for team in client.teams())


def _policies(client: Client, incomplete: str) -> Iterator[Candidate]:
    return ((policy["name"], policy["summary"]) for policy in client.policies())


def _tokens(client: Client, incomplete: str) -> Iterator[Candidate]:
    return ((str(token["id"]), token["name"]) for token in client.tokens() if not token["revoked_at"])


def _recurring_jobs(client: Client, incomplete: str) -> Iterator[Candidate]:
    return ((one["name"], f"{one['schedule']} {one['timezone']}") for one in client.recurring_jobs())


def _recipes(client: Client, incomplete: str) -> Iterator[Candidate]:
    return ((one["name"], one["description"] or one["team"]) for one in client.recipes())


def _sweeps(client: Client, incomplete: str) -> Iterator[Candidate]:
    return ((one["name"], f"{one['method']}, {one['state']}") for one in client.sweeps())


jobs, active_jobs, nodes, gpu_types, storage, teams, policies, tokens, recurring_jobs, recipes, sweeps = map(
    completer,
    (
        *(_jobs, _active_jobs, _nodes, _gpu_types, _storage, _teams, _policies, _tokens),
        *(_recurring_jobs, _recipes, _sweeps),
    ),
)


def complete_from(words: Iterable[str]) -> Callable[[str], list[str]]:
    """A completion of fixed words."""
    offered = list(words)
    return lambda incomplete: [word for word in offered if word.startswith(incomplete)]


JobArgument = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="Name of the job, NAME[INDEX], or 8 or more digits at either end of its id.",
        autocompletion=jobs,
    ),
]
JobArguments = Annotated[
    list[str],
    typer.Argument(
        metavar="JOB...",
        help="Names of jobs or arrays, NAME[INDEX], or 8 or more digits at either end of ids.",
        autocompletion=active_jobs,
    ),
]
TeamOption = Annotated[str | None, typer.Option(help="Only this team.", autocompletion=teams)]
