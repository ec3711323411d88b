"""Machines that join with a token, as the page Cluster and the administration show them."""

from datetime import datetime
from typing import NamedTuple

from django.contrib.auth.models import User
from django.db.models import Count, F, Q

from cluster_app.lending import hours_of
from cluster_app.models import Node
from connections_app.models import Agent

MOST_SHOWN = 200


class JoinedMachine(NamedTuple):
    """A machine with its node, once it has joined."""

    agent: Agent
    state: Agent.State
    node: Node | None
    gpus: int
    hours: str


def joined_machines(user: User, now: datetime) -> list[JoinedMachine]:
    """The machines that the user may see, by name; those that were revoked come last."""
    agents = Agent.objects.visible_to(user).select_related("team")
    shown = list(agents.order_by(F("revoked_at").asc(nulls_first=True), "name")[:MOST_SHOWN])
    nodes = Node.objects.filter(engine__agent__in=[agent.pk for agent in shown]).select_related("gpu_type")
    counted = nodes.annotate(gpus_present=Count("gpu", filter=Q(gpu__present=True)))
    of_engine = {str(node.engine_id): node for node in counted}
    return [_shown(agent, of_engine.get(agent.name), now) for agent in shown]


def _shown(agent: Agent, node: Node | None, now: datetime) -> JoinedMachine:
    gpus = getattr(node, "gpus_present", 0)
    return JoinedMachine(agent, agent.state_at(now), node, gpus, hours_of(node) if node is not None else "")
