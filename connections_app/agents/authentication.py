"""Authentication of agents by the digest of their token, bound to their machine and protocol version."""

from connections_app.errors import AgentRefused, NoSuchAgent, OtherRelease
from connections_app.models import Agent
from engines.agent.messages import VERSION
from jobs_app.models.team import digest_of

OF_EACH_MESSAGE = ("name", "machine", "site", "trusted", "engine")
"""To make the query of all columns takes longer than to run it, and agents send 40 messages a second."""


def agent_of(text: str) -> Agent:
    """The machine with this token; raises `NoSuchAgent`."""
    agent = Agent.objects.only(*OF_EACH_MESSAGE).filter(digest=digest_of(text), revoked_at=None).order_by().first()
    if agent is None:
        raise NoSuchAgent("The token of this machine is unknown or revoked.")
    return agent


def refuse_other_machine(agent: Agent, *, version: int, machine: str) -> None:
    """Raise `AgentRefused` if the token is used on another machine, or the agent's protocol version differs."""
    if version != VERSION:
        raise OtherRelease(f"This service speaks version {VERSION} with agents: use the agent of its release.")
    if machine != agent.machine:
        raise AgentRefused("This token is of another machine: ask for a join token for this one.")
