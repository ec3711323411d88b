"""Models: agents (machines that joined), tests of engines."""

from connections_app.models.agent import OF_RANKS, Agent, AgentAttempt
from connections_app.models.engine_probe import EngineProbe
from connections_app.models.standing import RIGHTS, Rights, Standing

__all__ = [
    "OF_RANKS",
    "RIGHTS",
    "Agent",
    "AgentAttempt",
    "EngineProbe",
    "Rights",
    "Standing",
]
