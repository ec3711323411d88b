"""Models: agents (machines that joined), tests of engines."""

from connections_app.models.agent import Agent, AgentAttempt
from connections_app.models.engine_probe import EngineProbe
from connections_app.models.standing import RIGHTS, Rights, Standing

__all__ = [
    "RIGHTS",
    "Agent",
    "AgentAttempt",
    "EngineProbe",
    "Rights",
    "Standing",
]
