"""Models: agents (machines that joined), tests of engines."""

from connections_app.models.agent import LONG_OF_ITS_AGENT, Agent, AgentAttempt
from connections_app.models.engine_probe import EngineProbe
from connections_app.models.standing import RIGHTS, Rights, Standing

__all__ = [
    "LONG_OF_ITS_AGENT",
    "RIGHTS",
    "Agent",
    "AgentAttempt",
    "EngineProbe",
    "Rights",
    "Standing",
]
