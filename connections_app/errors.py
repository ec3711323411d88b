"""Errors of machines that join, and of sessions."""

from web.rest.errors import Fault


class ConnectionsError(Exception):
    """Base class of the errors of machines and sessions."""

    code = "connections"
    faults: tuple[Fault, ...] = ()


class NoSuchAgent(ConnectionsError):
    """The token of a machine, or its join token, is not valid (any more)."""

    code = "not_authenticated"


class AgentRefused(ConnectionsError):
    """The machine, or its message, is not accepted."""

    code = "agent_refused"


class OtherRelease(AgentRefused):
    """The agent is of a release that speaks another version of the messages."""

    code = "other_release"


class ForkedAgent(ConnectionsError):
    """Another copy of the machine, with the same token and id, has had later answers."""

    code = "forked_agent"


class TooManyUploads(ConnectionsError):
    """The limit of simultaneous uploads is reached, of this machine or of all agents."""

    code = "too_many_uploads"
    retry_after_s = 5

    def __init__(self, said: str) -> None:
        super().__init__(f"{said}: send it again in {self.retry_after_s} s.")


class CheckpointNotCopied(ConnectionsError):
    """A new job cannot begin with this checkpoint: it is not there, out of reach, too large, or being written."""

    code = "checkpoint_not_copied"


class NoWebSocket(ConnectionsError):
    """The request is no WebSocket handshake, or the web server cannot carry one."""

    code = "no_websocket"


class TooManyLongRequests(ConnectionsError):
    """The user, or all, have as many open sessions or streams of logs as one process allows."""

    code = "too_many_long_requests"
    retry_after_s = 15

    def __init__(self, said: str) -> None:
        super().__init__(f"{said}: close one, or try again later.")
