"""Replay of jobs on a virtual cluster of equal nodes by Helios' rules: a queue by priority, nobody is preempted.

Gangs are placed together: on one node, or on whole nodes and one that takes the rest; of nodes that fit, the fullest.
The first job that does not fit stops the queue. An event at a time: a job comes, or ends.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

GPUS_PER_NODE = 8


class QueuedJob(NamedTuple):
    """A job of the trace; times in seconds."""

    team: str
    arrival_s: float
    duration_s: float
    gpus: int


Priority = Callable[[QueuedJob], float]
"""At the submission of a job, the smaller the sooner it starts."""
NoteEnd = Callable[[QueuedJob, float], None]
"""At the end of a job, at this time in seconds."""


@dataclass(eq=False)
class VirtualCluster:
    """Nodes by their free GPUs, the waiting jobs by priority, and the running ones by their ends."""

    nodes: int
    free: list[int] = field(init=False)
    waiting: list[tuple[float, int]] = field(default_factory=list)
    ends: list[tuple[float, int, list[tuple[int, int]]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.free = [GPUS_PER_NODE] * self.nodes

    def place(self, gpus: int) -> list[tuple[int, int]] | None:
        """Take GPUs as pairs of node and number; None: they are not free together."""
        whole, rest = divmod(gpus, GPUS_PER_NODE)
        idle = [n for n, free in enumerate(self.free) if free == GPUS_PER_NODE][:whole]
        fitting = [(free, n) for n, free in enumerate(self.free) if rest and free >= rest and n not in idle]
        if len(idle) < whole or (rest and not fitting):
            return None
        taken = [(n, GPUS_PER_NODE) for n in idle] + ([(min(fitting)[1], rest)] if rest else [])
        for node, number in taken:
            self.free[node] -= number
        return taken


def waits_of(
    jobs: Sequence[QueuedJob], nodes: int, priority: Priority, note_end: NoteEnd = lambda *_: None
) -> list[float]:
    """Seconds that each job waits, given by arrival; those that the nodes can never hold wait for inf."""
    cluster, waits, coming = VirtualCluster(nodes), [inf] * len(jobs), 0
    possible = [i for i, job in enumerate(jobs) if -(-job.gpus // GPUS_PER_NODE) <= nodes]
    while coming < len(possible) or cluster.ends:
        arrival_s = jobs[possible[coming]].arrival_s if coming < len(possible) else inf
        if cluster.ends and cluster.ends[0][0] <= arrival_s:
            now_s, i, taken = heappop(cluster.ends)
            for node, number in taken:
                cluster.free[node] += number
            note_end(jobs[i], now_s)
        else:
            now_s, i = arrival_s, possible[coming]
            coming += 1
            heappush(cluster.waiting, (priority(jobs[i]), i))
        _start(cluster, jobs, waits, now_s)
    return waits


def _start(cluster: VirtualCluster, jobs: Sequence[QueuedJob], waits: list[float], now_s: float) -> None:
    """Start waiting jobs in their order until one does not fit."""
    while cluster.waiting:
        _, i = cluster.waiting[0]
        if (taken := cluster.place(jobs[i].gpus)) is None:
            return
        heappop(cluster.waiting)
        waits[i] = now_s - jobs[i].arrival_s
        heappush(cluster.ends, (now_s + jobs[i].duration_s, i, taken))
