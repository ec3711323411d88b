"""Silence of agents, by the count of their messages and our own monotonic clock; no clock of theirs is read.

Only of the message that a new process finds first, its time is compared with this machine's.
"""

import secrets
from datetime import datetime
from math import inf
from time import monotonic

from django.conf import settings
from django.utils import timezone

from connections_app.models import Agent

SILENT_AFTER_S = 10.0
"""Without a new message for so long, the node is reported as silent: its heartbeats end."""
LEASE_MARGIN = 1.25
"""A lease is over for certain after so many times its length: the speeds of two clocks differ by at most 20 %."""
NEVER = -inf


class News:
    """What this process knows of the last message of an agent."""

    def __init__(self, message: tuple[int, datetime | None], found_s: float, *, is_recent: bool) -> None:
        self.message, self.found_s, self.is_recent = message, found_s, is_recent


last_news: dict[str, News] = {}
"""By the agent's name. Engines are made anew at will."""


def silent_s(agent: Agent) -> float:
    """Seconds since this process found the agent's last message; its lease began no later than that."""
    return monotonic() - _news_of(agent).found_s


def is_heard(agent: Agent) -> bool:
    """Whether a new message has arrived lately: the one that a new process finds may be a week old."""
    news = _news_of(agent)
    return bool(agent.told) and news.is_recent and monotonic() - news.found_s <= SILENT_AFTER_S


def lease_is_over(agent: Agent) -> bool:
    """Whether no process can be left of what the agent was given, as it has not been heard for longer than its lease.

    A process of the service that has just begun waits for as long itself.
    """
    after_s = silent_s(agent)
    return after_s > LEASE_MARGIN * settings.MOTLEY_AGENT_LEASE_S and after_s > LEASE_MARGIN * granted_lease_s(agent)


def new_mark() -> str:
    """Random mark of an answer, by which copies of a machine are told apart, with the lease granted, as `0a1b.240`."""
    return f"{secrets.token_hex(8)}.{settings.MOTLEY_AGENT_LEASE_S}"


def granted_lease_s(agent: Agent) -> float:
    """Longest lease of the last answer that the agent has had, and those since, which it may have had.

    A shorter setting holds for a machine that is heard again: one that is silent still has the lease of before.
    """
    heard, answers = Agent.objects.values_list("heard", "answers").get(pk=agent.pk)
    leases = [lease for _, _, lease in (mark.partition(".") for mark in (heard, *answers)) if lease]
    return max(map(float, leases), default=0.0)


def is_recent(agent: Agent) -> bool:
    """Whether the last message has come lately by the clocks of two processes of the service."""
    return agent.heard_at is not None and abs((timezone.now() - agent.heard_at).total_seconds()) <= SILENT_AFTER_S


def _news_of(agent: Agent) -> News:
    message, known = (agent.told, agent.heard_at), last_news.get(agent.name)
    if known is None or known.message != message:
        is_new = known is not None
        known = last_news[agent.name] = News(message, monotonic(), is_recent=is_new or is_recent(agent))
    return known
