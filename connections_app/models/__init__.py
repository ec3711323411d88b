"""Models: agents (machines that joined), tests of engines."""

from connections_app.models.agent import Agent, AgentAttempt
from connections_app.models.engine_probe import EngineProbe

__all__ = [
    "Agent",
    "AgentAttempt",
    "EngineProbe",
]
