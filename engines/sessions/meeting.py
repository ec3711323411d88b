"""Meeting of the two ends of a session at a socket: `python -ES -m engines.sessions.meeting listen|join <socket>`.

The web server starts one process for the client, which listens, and one for the agent that opens the session, which
joins: each copies between its standard streams and the socket.
"""

import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

from engines.sessions.enter import refuse
from engines.sessions.relay_from_elsewhere import relay
from engines.supervision.session_socket import short_path

WAIT_S = 30.0
NOT_OPENED = "The server of the rank has not opened the session: its agent is not heard, or is of another release."


def main() -> None:
    word, path = sys.argv[1:]
    try:
        connection = listened(Path(path)) if word == "listen" else joined(Path(path))
    except OSError:
        refuse(NOT_OPENED)
        return
    relay(connection)


def listened(path: Path, *, wait_s: float = WAIT_S) -> socket.socket:
    """The one connection to a new socket; raises `OSError` if there is none within a while."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        beside = path.with_name(f".{path.name[-16:]}")
        with short_path(beside) as address:
            listener.bind(address)
        try:
            listener.listen(1)
            listener.settimeout(wait_s)
            os.rename(beside, path)  # noqa: PTH104 - whoever finds the name can connect
            connection, _ = listener.accept()
        finally:
            for one in (beside, path):
                with suppress(FileNotFoundError):
                    one.unlink()
    connection.settimeout(None)
    return connection


def joined(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with short_path(path) as address:
        connection.connect(address)
    return connection


if __name__ == "__main__":
    main()
