"""Sessions in ranks of this server: each has a WebSocket that the agent opens, and the process that enters the rank.

Files of jobs are read over such a WebSocket, too, without a process.
"""

import logging
import subprocess
import threading
from contextlib import suppress
from http.client import HTTPException

from engines.agent.connection import Connection
from engines.agent.files import serve_files
from engines.agent.messages import SessionOrder
from engines.agent.websocket import NoWebSocket, WebSocket
from engines.local.engine import LocalEngine
from engines.protocol import EngineError
from engines.sessions.frames import HEADER, Kind

log = logging.getLogger(__name__)

READ_BYTES = 64 * 1024
NOT_THERE = 255
END_WITHIN_S = 10.0
MOST_KNOWN = 1000


class Sessions:
    """Opens each session once; the service repeats its order until then."""

    def __init__(self, connection: Connection, engine: LocalEngine) -> None:
        self._connection, self._engine = connection, engine
        self._known: dict[str, None] = {}
        """Keys in the order in which they came."""

    def open(self, order: SessionOrder) -> None:
        if order.key in self._known:
            return
        self._known[order.key] = None
        for old in [*self._known][:-MOST_KNOWN]:
            del self._known[old]
        threading.Thread(target=self._run, args=(order,), daemon=True).start()

    def _run(self, order: SessionOrder) -> None:
        try:
            websocket = self._connection.websocket(f"sessions/{order.key}")
        except (NoWebSocket, OSError, HTTPException) as error:
            log.warning("a session in attempt %s could not be opened: %s", order.attempt, error)
            return
        try:
            websocket.send(b"")
            if order.of_files:
                serve_files(self._engine, websocket)
            else:
                self._serve(order.attempt, websocket)
        except Exception:
            log.exception("a session in attempt %s failed", order.attempt)
        finally:
            websocket.close()

    def _serve(self, attempt: int, websocket: WebSocket) -> None:
        try:
            command = self._engine.session(attempt, 0)
        except EngineError as error:
            _refuse(websocket, str(error))
            return
        with subprocess.Popen(  # noqa: S603 - our own program
            list(command.argv),
            cwd=command.folder,
            env=dict(command.env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        ) as process:
            copies_input = threading.Thread(target=_copy_input, args=(websocket, process), daemon=True)
            copies_input.start()
            _copy_output(process, websocket)
            websocket.say_end()
            copies_input.join()
            websocket.drop_the_rest()


def _refuse(websocket: WebSocket, why: str) -> None:
    said, code = f"{why}\n".encode(), str(NOT_THERE).encode()
    websocket.send(HEADER.pack(Kind.ERROR, 0, len(said)) + said)
    websocket.send(HEADER.pack(Kind.EXIT, 0, len(code)) + code)


def _copy_input(websocket: WebSocket, process: "subprocess.Popen[bytes]") -> None:
    """Copy to the process; at the end of its input it ends what it has started, or is killed."""
    assert process.stdin is not None  # noqa: S101 - a pipe
    with suppress(OSError, ValueError, NoWebSocket):
        while (data := websocket.receive()) is not None:
            process.stdin.write(data)
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(END_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _copy_output(process: "subprocess.Popen[bytes]", websocket: WebSocket) -> None:
    assert process.stdout is not None  # noqa: S101 - a pipe
    with suppress(OSError):  # the client has gone
        while data := process.stdout.read(READ_BYTES):
            websocket.send(data)
