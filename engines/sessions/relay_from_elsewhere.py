"""Relay to a session from another process: `python -ES -m engines.sessions.relay_from_elsewhere <socket> <rank>`."""

import os
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

from engines.sessions.enter import refuse
from engines.supervision.session_socket import connect

READ_BYTES = 64 * 1024


def main() -> None:
    try:
        connection = connect(Path(sys.argv[1]), int(sys.argv[2]))
    except OSError:
        refuse("The job has just ended.")
        return
    relay(connection)


def relay(connection: socket.socket) -> None:
    """Copy between our standard streams and the connection, until its end."""
    threading.Thread(target=_copy_input, args=(connection,), daemon=True).start()
    with suppress(OSError):  # the client has gone
        while data := connection.recv(READ_BYTES):
            _write(sys.stdout.fileno(), data)


def _copy_input(connection: socket.socket) -> None:
    """Copy our input; its end is the session's, which may have something left to say."""
    with suppress(OSError):
        while data := os.read(sys.stdin.fileno(), READ_BYTES):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    main()
