"""Front of the web servers: `python -m front --listen 3 --web web-0 --web web-1`, with listening sockets that are
inherited, and servers by the paths of theirs."""

import argparse
import asyncio
import logging.config
import os
import resource
import signal
import socket
from contextlib import suppress
from pathlib import Path

from config.logs import logging_config, wants_json
from front.connection import Connection, Front
from front.connections import Connections
from front.exchange import Links
from front.places import Places, places_at, sizes_of
from front.routes import Kind

MOST_CONNECTIONS = 8192
MOST_LONG = 4000
"""More than its server admits, which says so better."""
SPARE_FILES = 64
LEAVE_WITHIN_S = 3.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="front", description=__doc__)
    parser.add_argument("--listen", type=int, action="append", required=True, help="descriptor of a listening socket")
    parser.add_argument("--web", action="append", required=True, help="socket of a server with threads")
    parser.add_argument("--threads", type=int, required=True, help="threads of each")
    parser.add_argument("--long", help="socket of the server of long requests; without it they are as others")
    options = parser.parse_args()
    with suppress(OSError):  # where /proc is read-only
        Path("/proc/self/comm").write_text("motley-front")  # as `ps -e` shows the other processes of the service
    as_json = wants_json(os.environ.get("MOTLEY_LOG_FORMAT", "auto"))
    logging.config.dictConfig(logging_config(as_json=as_json, level="INFO"))
    places = places_at(options.web, sizes_of(options.threads))
    if options.long is not None:
        places[Kind.LONG] = Places([options.long], MOST_LONG)
    front = Front(places, Connections(_most_connections()), Links())
    asyncio.run(_serve(front, [socket.socket(fileno=number) for number in options.listen]))


def _most_connections() -> int:
    """Half of the open files that we may have: a connection that is served has one to a server."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MOST_CONNECTIONS + SPARE_FILES
    soft = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, most))
    return (soft - SPARE_FILES) // 2


async def _serve(front: Front, listening: list[socket.socket]) -> None:
    told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    running: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(Connection(front, reader, writer).serve())
        running.add(task)
        task.add_done_callback(running.discard)

    servers = [await _server(connected, sock) for sock in listening]
    await told.wait()
    for server in servers:
        server.close()
    if running:
        await asyncio.wait(running, timeout=LEAVE_WITHIN_S)
    front.links.close()


async def _server(connected: object, sock: socket.socket) -> asyncio.Server:
    start = asyncio.start_unix_server if sock.family == socket.AF_UNIX else asyncio.start_server
    return await start(connected, sock=sock)  # type: ignore[arg-type]


main()
