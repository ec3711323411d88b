"""Shadow mode on a made-up month of Slurm's accounting: seconds from the file to the page.

python -m benchmarks.shadow_month --jobs 60000 --policy fifo --policy qssf
"""

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from heapq import heappop, heappush
from pathlib import Path
from time import perf_counter

from allocation.solvers.linear_program import divert_native_output
from simulation.__main__ import main as simulate
from simulation.shadow.accounting import FORMAT

BEGAN = datetime(2026, 9, 1)  # noqa: DTZ001 - sacct writes local times without a zone
MONTH_S = 30 * 86_400
NODES = {"a100": (8, 40), "v100": (4, 40)}
"""GPUs of a node and number of nodes by type."""
SIZES = {"a100": (1, 1, 1, 1, 2, 2, 4, 8, 8, 16), "v100": (1, 1, 2, 4)}
LOAD = 0.9

Job = tuple[float, int, str, int, int]
"""Submission, number, GPU type, GPUs, seconds."""


class Cluster:
    """Slurm's own order here: each type first in, first out, nodes filled one after the other."""

    def __init__(self) -> None:
        self._free = {kind: [size] * count for kind, (size, count) in NODES.items()}
        self._running: list[tuple[float, int, str, list[tuple[int, int]]]] = []
        self._waiting: dict[str, list[Job]] = {kind: [] for kind in NODES}

    def submit(self, job: Job) -> Iterator[str]:
        yield from self.until(job[0])
        self._waiting[job[2]].append(job)
        yield from self._start(job[2], job[0])

    def until(self, at: float) -> Iterator[str]:
        """Accounting lines of the jobs that start by this time."""
        while self._running and self._running[0][0] <= at:
            ended, _, kind, parts = heappop(self._running)
            for node, gpus in parts:
                self._free[kind][node] += gpus
            yield from self._start(kind, ended)

    def _start(self, kind: str, now: float) -> Iterator[str]:
        while (queue := self._waiting[kind]) and (parts := self._place(kind, queue[0][3])):
            job = queue.pop(0)
            for node, gpus in parts:
                self._free[kind][node] -= gpus
            heappush(self._running, (now + job[4], job[1], kind, parts))
            yield _line(job, now, [f"{kind}-{node:02}" for node, _ in parts])

    def _place(self, kind: str, gpus: int) -> list[tuple[int, int]]:
        size, _ = NODES[kind]
        here = min(gpus, size)
        fitting = [node for node, free in enumerate(self._free[kind]) if free >= here]
        count = gpus // here
        return [(node, here) for node in fitting[:count]] if len(fitting) >= count else []


def _line(job: Job, started: float, nodes: list[str]) -> str:
    submitted, number, kind, gpus, seconds = job
    user = number % 97
    tres = f"billing={gpus},cpu={8 * gpus},gres/gpu={gpus},gres/gpu:{kind}={gpus},mem={64 * gpus}G,node={len(nodes)}"
    times = [
        (BEGAN + timedelta(seconds=int(at))).isoformat() for at in (submitted, submitted, started, started + seconds)
    ]
    ids = [str(1000 + number)] * 2
    of_job = [f"user{user}", f"team{user % 6}", kind, tres, tres, *times, "COMPLETED", "1-00:00:00", str(len(nodes))]
    return "|".join([*ids, *of_job, ",".join(nodes), f"train-{user}-{number % 3}"])


def month(jobs: int) -> Iterator[str]:
    """Lines of a month of so many jobs, which fill the cluster to `LOAD` on average."""
    drawn, cluster = random.Random(1), Cluster()
    yield FORMAT.replace(",", "|")
    arrivals = sorted(drawn.random() * MONTH_S for _ in range(jobs))
    kinds = [drawn.choice(("a100", "a100", "v100")) for _ in arrivals]
    sizes = [drawn.choice(SIZES[kind]) for kind in kinds]
    lengths = [drawn.lognormvariate(0, 1.4) for _ in arrivals]
    there = {kind: size * count * MONTH_S * LOAD for kind, (size, count) in NODES.items()}
    asked = {kind: sum(g * s for g, s, k in zip(sizes, lengths, kinds, strict=True) if k == kind) for kind in NODES}
    for number, (at, kind, gpus, length) in enumerate(zip(arrivals, kinds, sizes, lengths, strict=True)):
        yield from cluster.submit((at, number, kind, gpus, 1 + int(length * there[kind] / asked[kind])))
    yield from cluster.until(float("inf"))


def main() -> None:
    divert_native_output(sys.stderr.fileno())
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=60_000)
    parser.add_argument("--policy", action="append", help="may be repeated; default: those of shadow mode")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sacct.txt"
        file.write_text("\n".join(month(asked.jobs)))
        policies = [word for policy in asked.policy or () for word in ("--policy", policy)]
        began = perf_counter()
        try:
            simulate(["shadow", "import", str(file), "--out", folder, *policies])
        except SystemExit as ended:
            sys.stdout.write(f"{asked.jobs:,} jobs: {perf_counter() - began:.0f} s from the file to the page\n")
            sys.exit(ended.code)


if __name__ == "__main__":
    main()
