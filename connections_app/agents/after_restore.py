"""Agents of a database that was set back to a backup: what became of them since, it does not know.

Their marks are newer than those that it has, and so are their attempts, whose numbers it would give to others.
"""

from datetime import datetime

from django.conf import settings
from django.db import DatabaseError

from connections_app.agents.silence import LEASE_MARGIN
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


def longest_lease_s() -> float:
    """Seconds after the last answer of the service in which a job may still run at an agent."""
    return LEASE_MARGIN * settings.MOTLEY_AGENT_LEASE_S


def expect_agents(now: datetime) -> None:
    """Let each agent be heard with any mark until it shows that of an answer since then.

    A launch that it had not been given may have been given to it after the backup.
    """
    Agent.objects.filter(engine__isnull=False).update(heard=ANY_MARK, answers=[])
    AgentAttempt.objects.filter(delivered_at=None, forgotten=False).exclude(launch="").update(delivered_at=now)
