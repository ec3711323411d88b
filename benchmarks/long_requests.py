"""Streams of logs and sessions beside pages: `python -m benchmarks.long_requests [--streams 1000] [--sessions 200]`.

A service as `manage.py serve` starts it, with one job that writes a line each second. The followers are server-sent
events, the sessions WebSockets that echo a line every ten seconds; all are tasks of one process on the same machine.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import httpx
from websockets.asyncio.client import connect

from benchmarks.figures import Figure, percentile, table
from benchmarks.live_service import live_service

PAGES = ("/livez", "/login/")
EVERY_S, ECHO_EVERY_S = 0.2, 10.0
AT_ONCE = 50
"""Connections that are being made."""
SETTLES_S = 10.0
COMMAND = "for n in $(seq 100000); do echo $(date +%s.%N); sleep 1; done"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    limits = {"MOTLEY_USER_LOG_STREAMS": str(options.streams), "MOTLEY_USER_SESSIONS": str(options.sessions)}
    with live_service({"a100": (1, 8)}, policy="motley", round_s=5, min_run_s=0, **limits) as client:
        job = client.submit({"name": "writer", "command": COMMAND, "gpus": 1, "team": "vision"})["id"]
        while client.job(job)["state"] != "running":
            time.sleep(0.2)
        url, token = str(client._http.base_url).partition("/api/")[0], client._http.headers["Authorization"].split()[1]
        alone = _pages(url, options.seconds / 3)
        with _open(url, token, job, options.streams, options.sessions) as result:
            beside = _pages(url, options.seconds)
        print(table(_figures(options, alone, beside, result)))


def _figures(
    options: argparse.Namespace, alone: dict[str, list[float]], beside: dict[str, list[float]], result: dict[str, Any]
) -> list[Figure]:
    figures = [
        Figure("streams that received lines", result["streams"], "", options.streams, True),
        Figure("sessions that were answered", result["sessions"], "", options.sessions, True),
        Figure("age of a line when it is received: median", percentile(result["ages"] or [0], 50), "s"),
        Figure("age of a line when it is received: p99", percentile(result["ages"] or [0], 99), "s"),
    ]
    for page in PAGES:
        figures += [
            Figure(f"{page} alone: p95", percentile(alone[page], 95), "ms"),
            Figure(f"{page} beside them: p95", percentile(beside[page], 95), "ms"),
            Figure(f"{page} beside them: longest", max(beside[page]), "ms"),
        ]
    return figures


def _pages(url: str, seconds: float) -> dict[str, list[float]]:
    """Milliseconds of each answer."""
    times: dict[str, list[float]] = {page: [] for page in PAGES}
    until = time.monotonic() + seconds
    with httpx.Client(timeout=60) as http:
        while time.monotonic() < until:
            for page in PAGES:
                began = time.perf_counter()
                http.get(url + page).raise_for_status()
                times[page].append(1000 * (time.perf_counter() - began))
            time.sleep(EVERY_S)
    return times


@contextmanager
def _open(url: str, token: str, job: str, streams: int, sessions: int) -> Iterator[dict[str, Any]]:
    """All connections, open; afterwards what they received."""
    ours, theirs = multiprocessing.Pipe()
    arguments = (url, token, job, streams, sessions, theirs)
    process = multiprocessing.get_context("spawn").Process(target=_run_all, args=arguments)
    process.start()
    result: dict[str, Any] = {}
    try:
        print(f"open: {ours.recv()}", flush=True)
        time.sleep(SETTLES_S)
        yield result
        ours.send("enough")
        result.update(ours.recv())
    finally:
        process.kill()
        process.join()


def _run_all(  # noqa: PLR0917 - by spawn
    url: str, token: str, job: str, streams: int, sessions: int, connection: Connection
) -> None:
    os.nice(5)
    asyncio.run(Crowd(url, token, job).run(streams, sessions, connection))


class Crowd:
    """The clients, and what they received."""

    def __init__(self, url: str, token: str, job: str) -> None:
        self._url, self._token, self._job = url, token, job
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._ages: list[float] = []
        self._lines: dict[int, int] = {}
        self._echoes: dict[int, int] = {}
        self._failed: list[str] = []

    async def run(self, streams: int, sessions: int, connection: Connection) -> None:
        tasks = [asyncio.create_task(self._kept(self._follow, number)) for number in range(streams)]
        tasks += [asyncio.create_task(self._kept(self._session, number)) for number in range(sessions)]
        while len(self._lines) + len(self._echoes) + len(self._failed) < len(tasks):
            await asyncio.sleep(0.2)
        connection.send(f"{len(self._lines)} streams, {len(self._echoes)} sessions; failed: {self._failed[:3]}")
        self._ages.clear()
        self._lines.clear()
        self._echoes.clear()
        await asyncio.to_thread(connection.recv)
        connection.send({"streams": len(self._lines), "sessions": len(self._echoes), "ages": self._ages})

    async def _kept(self, work: Any, number: int) -> None:
        try:
            await work(number)
        except Exception as error:
            self._failed.append(repr(error)[:200])

    async def _follow(self, number: int) -> None:
        host, _, port = self._url.removeprefix("http://").partition(":")
        async with self._turn:
            reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 20)
            head = f"GET /api/v1/jobs/{self._job}/logs HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n"
            writer.write(f"{head}Authorization: Bearer {self._token}\r\n\r\n".encode())
            status = await reader.readline()
            if b" 200 " not in status:
                raise RuntimeError(status.decode())
            while not (await reader.readline()).startswith(b"data: "):
                pass
        self._lines[number] = 1
        while line := await reader.readline():
            if line.startswith(b"data: ") and line[6:7].isdigit():
                self._ages.append(time.time() - float(line[6:]))
                self._lines[number] = self._lines.get(number, 0) + 1

    async def _session(self, number: int) -> None:
        address = f"{self._url.replace('http', 'ws', 1)}/api/v1/jobs/{self._job}/session"
        headers = {"Authorization": f"Bearer {self._token}"}
        async with self._turn:
            socket = await connect(address, additional_headers=headers, compression=None, open_timeout=120)
            await socket.send(json.dumps({"argv": ["sh", "-c", f"while echo up; do sleep {ECHO_EVERY_S}; done"]}))
            await socket.recv()
        self._echoes[number] = 1
        async for _ in socket:
            self._echoes[number] = self._echoes.get(number, 0) + 1


if __name__ == "__main__":
    main()
