"""Rolling update of servers: their agents change to the program of this service, one server at a time.

The jobs run on meanwhile. A server that goes back to its program ends the update: the others stay as they are.
"""

from collections.abc import Sequence
from typing import NamedTuple

from connections_app.agents.program import program_digest
from connections_app.agents.silence import is_heard
from connections_app.models import Agent


class Server(NamedTuple):
    """A server with an agent that its service can change."""

    pk: int
    program: str
    told: str
    """The program to which it was told to change; empty: none."""
    is_heard: bool


def next_to_update(servers: Sequence[Server], program: str) -> int | None:
    """The server that changes to this program next; None: none, or another still changes. Pure."""
    old = [one for one in servers if one.program != program]
    if any(one.told == program for one in old):
        return None
    return next((one.pk for one in old if one.is_heard), None)


def server_to_update() -> int | None:
    """The server that changes next to the program of this service; None: none does now."""
    agents = Agent.objects.filter(site=True, engine__isnull=False, revoked_at=None, left_at=None).exclude(program="")
    found = [Server(one.pk, one.program, one.update_to, is_heard(one)) for one in agents.order_by("name")]
    return next_to_update(found, program_digest()) if found else None


def tell_to_update(agent: int) -> None:
    Agent.objects.filter(pk=agent).update(update_to=program_digest(), update_fault="")


def program_for(agent: Agent) -> str:
    """The program to which the agent is to change now; empty: none, or it could not be used there."""
    has_failed = bool(agent.update_fault) and agent.update_to in agent.update_fault  # the fault names its program
    return agent.update_to if agent.site and agent.update_to != agent.program and not has_failed else ""
