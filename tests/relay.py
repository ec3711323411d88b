"""Relay of TCP connections: `relay.py HOST PORT TO_HOST TO_PORT`. It says a line once it listens."""

import asyncio
import contextlib
import sys


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        beyond_reader, beyond_writer = await asyncio.open_connection(*sys.argv[3:5])
    except OSError:
        writer.close()
        return
    await asyncio.gather(copy(reader, beyond_writer), copy(beyond_reader, writer))
    for one in (writer, beyond_writer):
        one.close()


async def main() -> None:
    server = await asyncio.start_server(relay, sys.argv[1], int(sys.argv[2]))
    print("listens", flush=True)
    await server.serve_forever()


asyncio.run(main())
