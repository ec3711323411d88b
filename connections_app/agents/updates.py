"""Rolling update of servers: their agents change to the program of this service, one server at a time.

The jobs run on meanwhile. A server that goes back to its program ends the update: the others stay as they are. They
wait, too, for one that was told to change and is silent: the new program may be the cause.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django.contrib.auth.base_user import AbstractBaseUser
from django.db import transaction
from django.db.models import F, QuerySet
from django.utils import timezone
from django.utils.timezone import localtime

from audit_app.models import Action
from audit_app.services import note
from connections_app.agents.program import program_digest
from connections_app.agents.silence import is_heard
from connections_app.errors import AgentRefused
from connections_app.models import Agent

OF_UPDATES = ("name", "program", "update_to", "told", "heard_at")
LATE_AFTER = timedelta(minutes=15)
"""An agent tries a change again a minute after a fault that may pass, and goes back after another."""
LATE = (
    "It was told at {:%H:%M on %d %B} to change its program, and has neither changed nor said why not: the other "
    "servers wait for it. See the log of its agent; then have it try again, or revoke it."
)


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
    found = [Server(one.pk, one.program, one.update_to, is_heard(one)) for one in _agents().only(*OF_UPDATES)]
    return next_to_update(found, program_digest()) if found else None


def tell_to_update(agent: int) -> None:
    Agent.objects.filter(pk=agent).update(update_to=program_digest(), update_at=timezone.now(), update_fault="")


@transaction.atomic
def try_update_again(agent: Agent, *, actor: AbstractBaseUser | None) -> None:
    """Have a server that failed to change to the program of this service try it again.

    Raises `AgentRefused` for one that has nothing to try.
    """
    agent = Agent.objects.select_for_update().get(pk=agent.pk)
    if reason := _why_not_again(agent, program_digest()):
        raise AgentRefused(reason)
    tried = {"update_at": timezone.now(), "update_fault": "", "update_tries": F("update_tries") + 1}
    Agent.objects.filter(pk=agent.pk).update(**tried)
    said = f"to {program_digest()}{', which failed: ' if agent.update_fault else ''}{agent.update_fault}"
    note(Action.SERVER_UPDATE, actor=actor, target=agent.name, target_id=agent.pk, message=said)


def _why_not_again(agent: Agent, program: str) -> str:
    """Why there is nothing that the server could try again; empty: there is. Pure."""
    if not agent.site or agent.engine_id is None or agent.revoked_at is not None or agent.left_at is not None:
        return f"{agent.name} is no server that works here: the service changes the programs of its servers alone."
    if not agent.program:
        return (
            f"{agent.name} has an agent that the service cannot change: run the line of Add a server there once more."
        )
    if agent.program == program:
        return f"{agent.name} runs the program of the service already."
    if agent.update_to != program:
        return f"{agent.name} has not been told to change yet: servers change one after the other, by themselves."
    return ""


def program_for(agent: Agent) -> str:
    """The program to which the agent is to change now; empty: none, or it could not be used there."""
    has_failed = bool(agent.update_fault) and agent.update_to in agent.update_fault  # the fault names its program
    return agent.update_to if agent.site and agent.update_to != agent.program and not has_failed else ""


def update_fault_of(agent: Agent, now: datetime) -> str:
    """Why the agent has not changed to the program to which it was told to; empty: it has, or may do so yet. Pure."""
    if agent.update_fault or agent.update_at is None or agent.update_to in ("", agent.program):
        return agent.update_fault
    return LATE.format(localtime(agent.update_at)) if now - agent.update_at > LATE_AFTER else ""


def held_up_by(now: datetime) -> list[tuple[str, str]]:
    """The servers for which the others wait with the update, and why."""
    told = _agents().filter(update_to=program_digest()).exclude(program=program_digest())
    return [(agent.name, why) for agent in told if (why := update_fault_of(agent, now))]


def _agents() -> QuerySet[Agent]:
    """Those that this service can change, by name."""
    servers = Agent.objects.short().filter(site=True, engine__isnull=False, revoked_at=None, left_at=None)
    return servers.exclude(program="").order_by("name")
