"""Agents of a database that was set back to a backup: what became of them since, it does not know.

Their marks are newer than those that it has, and so are their attempts, whose numbers it would give to others.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from django.conf import settings
from django.db import DatabaseError

from connections_app.agents.silence import LEASE_MARGIN, granted_lease_s
from connections_app.agents.sync import ANY_MARK
from connections_app.models import Agent, AgentAttempt

UNKNOWN_ATTEMPTS = 1_000_000
"""More than agents are given between a backup and its restore."""


def machines_have_joined() -> bool:
    """Whether agents may have jobs. False for a database that cannot be read, as one that a restore is to replace."""
    try:
        return Agent.objects.filter(engine__isnull=False, revoked_at=None).exists()
    except DatabaseError:  # without tables, or with those of another version
        return False


def leases_before(now: datetime) -> dict[str, float]:
    """For each machine, seconds for which its jobs may still run without an answer from now on.

    By the database that is to be replaced.

    0 for one that has not been heard for longer. Empty for a database that cannot be read.
    """
    try:
        return {agent.name: _lease_s(agent, now) for agent in Agent.objects.short().filter(engine__isnull=False)}
    except DatabaseError:
        return {}


def lease_to_outlast_s(before: Mapping[str, float]) -> float:
    """Seconds after which no job is left at a machine; call it before `expect_agents`, which drops the marks.

    Machines of the restored database that the one `before` did not know may have been heard until now, by a service
    that ran elsewhere.
    """
    joined = Agent.objects.short().filter(engine__isnull=False, revoked_at=None)
    unknown = [_longest_s(agent) for agent in joined.exclude(name__in=before)]
    return max([*before.values(), *unknown], default=0.0)


def _lease_s(agent: Agent, now: datetime) -> float:
    """Of an agent that was not heard since another restore, nothing is known of the messages before that."""
    if agent.heard == ANY_MARK:
        return _longest_s(agent)
    lease_s = LEASE_MARGIN * (granted_lease_s(agent) or settings.MOTLEY_AGENT_LEASE_S)
    is_over = agent.heard_at is None or now - agent.heard_at > timedelta(seconds=lease_s)
    return 0.0 if is_over else lease_s


def _longest_s(agent: Agent) -> float:
    return LEASE_MARGIN * max(granted_lease_s(agent), settings.MOTLEY_AGENT_LEASE_S)


def expect_agents(now: datetime) -> None:
    """Let each agent be heard with any mark until it shows that of an answer since then.

    A launch that it had not been given may have been given to it after the backup.
    """
    Agent.objects.filter(engine__isnull=False).update(heard=ANY_MARK, answers=[])
    AgentAttempt.objects.filter(delivered_at=None, forgotten=False).exclude(launch="").update(delivered_at=now)
