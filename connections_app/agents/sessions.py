"""Sessions in ranks on servers: the client's process waits at a socket, to which that of the server's agent comes.

The sockets lie in a folder; their names say the attempt, the rank and a key, which the agent is told.
"""

import re
import secrets
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from django.db.models import Q

from connections_app.agents.uploads import agent_root, make_folder
from connections_app.models import Agent, AgentAttempt
from engines.agent.messages import SessionOrder
from engines.protocol import SessionCommand
from engines.sessions.meeting import WAIT_S
from engines.supervision.engine_root import SYSTEM_PATH
from engines.supervision.rank import PACKAGE_PARENT, PYTHON
from jobs_app.models import Attempt

KEY = re.compile(r"[0-9a-f]{32}")
NAME = re.compile(rf"(-?[0-9]+)\.([0-9]+)\.({KEY.pattern})(\.files)?")
LEFT_AFTER_S = 2 * WAIT_S
"""A socket that is older is of a process that was killed: nobody waits there any more."""


class Waiting(NamedTuple):
    """A session that waits for the agent of its rank."""

    attempt: int
    rank: int
    key: str
    path: Path
    of_files: bool


def listening_command(attempt: int, rank: int) -> SessionCommand:
    """Command of the client's end, which waits for the agent."""
    return _command("listen", new_socket(attempt, rank))


def new_socket(attempt: int, rank: int, *, of_files: bool = False) -> Path:
    """Path of a socket to come: whoever listens there waits for the agent of the rank."""
    make_folder(_folder())
    return _folder() / f"{attempt}.{rank}.{secrets.token_hex(16)}{'.files' if of_files else ''}"


def orders_of(rows: Collection[AgentAttempt], kept: Collection[AgentAttempt] = ()) -> list[SessionOrder]:
    """The sessions that wait in these ranks, and questions for files of those, and of jobs that are kept."""
    ranks, of_files = {(row.attempt, row.rank) for row in rows}, {(row.attempt, row.rank) for row in kept}
    return [
        SessionOrder(one.key, one.attempt, one.of_files)
        for one in _waiting()
        if (one.attempt, one.rank) in ranks or (one.of_files and (one.attempt, one.rank) in of_files)
    ]


class ServerSession:
    """The agent's end of a session, for the server of long requests."""

    to_the_end = True

    def __init__(self, agent: Agent, waiting: Waiting) -> None:
        self._agent, self._waiting = agent, waiting
        self.command = _command("join", waiting.path)

    def begin(self, message: str | bytes) -> bytes:
        """Nothing is asked: the client has."""
        return b""

    def check(self, in_use: bool) -> bool:
        """Whether the agent is not revoked, and the attempt runs; a file may be read to its end."""
        is_valid = Agent.objects.filter(pk=self._agent.pk, revoked_at=None).exists()
        return is_valid and self.runs()

    def runs(self) -> bool:
        """Whether the attempt runs; files are read after its end, too."""
        return self._waiting.of_files or Attempt.objects.live().filter(pk=self._waiting.attempt).exists()


def attempts_asked_for() -> list[int]:
    """Attempts of whose jobs somebody waits for files."""
    return [one.attempt for one in _waiting() if one.of_files]


def session_of(agent: Agent, key: str) -> ServerSession | None:
    """The session with this key, if it is in a rank of this agent."""
    if not KEY.fullmatch(key):
        return None
    for waiting in _waiting():
        is_here = Q(forgotten=False) | Q(kept=True) if waiting.of_files else Q(forgotten=False)
        of_rank = agent.attempts.filter(is_here, attempt=waiting.attempt, rank=waiting.rank)
        if secrets.compare_digest(waiting.key, key) and of_rank.exists():
            return ServerSession(agent, waiting)
    return None


def _waiting() -> Iterator[Waiting]:
    """The sockets at which somebody may wait; those that killed processes have left are removed."""
    if _folder().is_dir():
        for path in _folder().iterdir():
            if _is_left(path):
                path.unlink(missing_ok=True)
            elif found := NAME.fullmatch(path.name):
                yield Waiting(int(found[1]), int(found[2]), found[3], path, of_files=found[4] is not None)


def _is_left(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_ctime > LEFT_AFTER_S
    except FileNotFoundError:  # the session has been opened meanwhile
        return False


def _folder() -> Path:
    return agent_root() / "sessions"


def _command(word: str, path: Path) -> SessionCommand:
    argv = [*PYTHON, "engines.sessions.meeting", word, str(path)]
    return SessionCommand(argv, PACKAGE_PARENT, {"PATH": SYSTEM_PATH, "LANG": "C.UTF-8"})
