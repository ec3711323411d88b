"""200 followers of logs beside `/livez`: `python -m benchmarks.followers [--followers 200] [--seconds 60]`.

A service as `manage.py serve` starts it, with one job that writes a line each second. Each follower is a thread with a
client of its own that does what `motley logs -f` does; all are in a process of their own, on the same machine.
"""

import argparse
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from threading import Thread

import httpx

from benchmarks.figures import Figure, percentile, table
from benchmarks.live_service import live_service
from motley_client import Client

LIVEZ_MS = 100
EVERY_S = 0.1
SETTLES_S = 20.0
"""After so long every follower has been told how often to come."""
COMMAND = "for n in $(seq 100000); do echo $(date +%s.%N); sleep 1; done"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--followers", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    with live_service({"a100": (1, 8)}, policy="motley", round_s=5, min_run_s=0) as client:
        job = client.submit({"name": "writer", "command": COMMAND, "gpus": 1, "team": "vision"})["id"]
        while client.job(job)["state"] != "running":
            time.sleep(0.2)
        url, token = str(client._http.base_url).partition("/api/")[0], client._http.headers["Authorization"].split()[1]
        alone = _livez(url, options.seconds / 3)
        with _followers(url, token, job, options.followers) as received:
            time.sleep(SETTLES_S)
            beside = _livez(url, options.seconds)
        delays = received()
    print(table(_figures(options.followers, alone, beside, delays)))


def _figures(followers: int, alone: list[float], beside: list[float], delays: list[list[float]]) -> list[Figure]:
    all_delays = [delay for of_one in delays for delay in of_one] or [0.0]
    return [
        Figure("/livez alone: p95", percentile(alone, 95), "ms"),
        Figure(f"/livez beside {followers} followers: p95", percentile(beside, 95), "ms", LIVEZ_MS),
        Figure(f"/livez beside {followers} followers: longest", max(beside), "ms"),
        Figure("followers that received lines", sum(bool(of_one) for of_one in delays), "", followers, True),
        Figure("age of a line when it is received: median", percentile(all_delays, 50), "s"),
        Figure("age of a line when it is received: p99", percentile(all_delays, 99), "s"),
    ]


def _livez(url: str, seconds: float) -> list[float]:
    """Milliseconds of each answer, one every `EVERY_S`."""
    times, until = [], time.monotonic() + seconds
    with httpx.Client(timeout=60) as probe:
        while time.monotonic() < until:
            began = time.perf_counter()
            probe.get(f"{url}/livez").raise_for_status()
            times.append(1000 * (time.perf_counter() - began))
            time.sleep(EVERY_S)
    return times


@contextmanager
def _followers(url: str, token: str, job: str, count: int) -> Iterator["Received"]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_follow_all, args=(url, token, job, count, theirs))
    process.start()
    received = Received(ours)
    try:
        yield received
        ours.send("enough")
        received.delays = ours.recv()
    finally:
        process.kill()
        process.join()


class Received:
    """Ages of the lines that each follower received, once all have been stopped."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.delays: list[list[float]] = []

    def __call__(self) -> list[list[float]]:
        return self.delays


def _follow_all(url: str, token: str, job: str, count: int, connection: Connection) -> None:
    delays: list[list[float]] = [[] for _ in range(count)]
    for of_one in delays:
        Thread(target=_follow, args=(url, token, job, of_one), daemon=True).start()
    connection.recv()
    connection.send(delays)


def _follow(url: str, token: str, job: str, delays: list[float]) -> None:
    with Client(url, token) as client:
        for data in client.follow_logs(job, tail=1):
            now = time.time()
            delays += [now - float(line) for line in data.split()]


if __name__ == "__main__":
    main()
