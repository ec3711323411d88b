"""What a shell may offer for a word that is being typed. Quick, and silent when there is nothing to offer."""

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Annotated

import typer

from motley_client.answers import ACTIVE_STATES
from motley_client.client import Client
from motley_client.configuration import configuration

PATIENCE_S = 1.5
MOST = 50
PLAIN = re.compile(r"[\w.+@%-]+")
"""Names that no shell takes apart; of other jobs the id is offered."""
ID_BEGINS = re.compile(r"[0-9a-f]{4,8}(-[0-9a-f-]*)?|[0-9a-f]{8,}")

Offer = tuple[str, str]
Complete = Callable[[typer.Context, str], list[Offer]]


def asking(offers: Callable[[Client, str], Iterator[Offer]]) -> Complete:
    """A completion that asks the service; whatever goes wrong, a half-typed line is no place to say so."""

    def complete(context: typer.Context, incomplete: str) -> list[Offer]:
        options = context.find_root().params
        try:
            chosen = configuration(url=options.get("url"), token=options.get("token"))
            with Client(chosen.url, chosen.token, timeout_s=PATIENCE_S, repeats=0) as client:
                return [offer for offer in islice(offers(client, incomplete), MOST) if offer[0].startswith(incomplete)]
        except Exception:  # not even a traceback
            return []

    return complete


def _jobs(client: Client, incomplete: str) -> Iterator[Offer]:
    fields = ("id", "name", "state")
    by_id = ID_BEGINS.fullmatch(incomplete)
    for job in client.jobs(q=incomplete or None, fields=fields, page_size=MOST):
        if PLAIN.fullmatch(job["name"]):
            yield job["name"], f"{job['state']} {job['id']}"
        if by_id or not PLAIN.fullmatch(job["name"]):
            yield job["id"], job["state"]


def _active_jobs(client: Client, incomplete: str) -> Iterator[Offer]:
    for job in client.jobs(state=ACTIVE_STATES, q=incomplete or None, fields=("id", "name", "state"), page_size=MOST):
        plain = PLAIN.fullmatch(job["name"]) and job["name"].startswith(incomplete)
        yield (job["name"] if plain else job["id"]), job["state"]


def _nodes(client: Client, incomplete: str) -> Iterator[Offer]:
    return ((node["name"], f"{node['gpus']} {node['gpu_type']}, {node['state']}") for node in client.nodes())


def _gpu_types(client: Client, incomplete: str) -> Iterator[Offer]:
    return ((kind["name"], f"{kind['free_gpus']} of {kind['gpus']} free") for kind in client.gpu_types())


def _teams(client: Client, incomplete: str) -> Iterator[Offer]:
    return ((team["name"], f"weight {team['weight']:g}") for team in client.teams())


def _policies(client: Client, incomplete: str) -> Iterator[Offer]:
    return ((policy["name"], policy["summary"]) for policy in client.policies())


def _tokens(client: Client, incomplete: str) -> Iterator[Offer]:
    return ((str(token["id"]), token["name"]) for token in client.tokens() if not token["revoked_at"])


jobs, active_jobs, nodes, gpu_types, teams, policies, tokens = map(
    asking, (_jobs, _active_jobs, _nodes, _gpu_types, _teams, _policies, _tokens)
)

JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="A name, or the beginning of an id.", autocompletion=jobs)
]
JobArguments = Annotated[
    list[str], typer.Argument(metavar="JOB...", help="Names, or beginnings of ids.", autocompletion=active_jobs)
]
TeamOption = Annotated[str | None, typer.Option(autocompletion=teams)]
