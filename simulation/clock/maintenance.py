"""Maintenance of nodes in a simulation: windows at fixed times, once or again and again."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, inf, isinf
from typing import Self

import numpy as np

from allocation.problem import Problem
from allocation.rounds.windows import Stays, Windows, slowest_rates
from allocation.types import Bools, Floats
from simulation.cluster import Cluster


@dataclass(frozen=True)
class MaintenanceWindow:
    """Maintenance of the first nodes of a GPU type, None: of all, in seconds from the first arrival; inf: once."""

    gpu_type: str
    nodes: int | None
    begins_s: float
    length_s: float
    every_s: float = inf

    def next_begin_s(self, now_s: float) -> float:
        """Seconds from now to the begin of the occurrence that goes on or is next; once: of the only one."""
        if isinf(self.every_s):
            return self.begins_s - now_s
        passed = floor((now_s - self.begins_s - self.length_s) / self.every_s) + 1
        return self.begins_s + max(passed, 0) * self.every_s - now_s


@dataclass(frozen=True, eq=False)
class Maintenance:
    """The windows of a cluster, and the nodes (V, N) of each.

    Jobs are stopped in the last round before a window, with their work saved.
    """

    windows: Sequence[MaintenanceWindow]
    nodes: Bools
    round_s: float

    @classmethod
    def of(cls, windows: Sequence[MaintenanceWindow], cluster: Cluster, *, round_s: float) -> Self:
        """Of a cluster that has these GPU types."""
        each = [
            (name, n)
            for name, sizes in zip(cluster.gpu_types, cluster.node_gpus, strict=True)
            for n in range(len(sizes))
        ]
        nodes = [[name == one.gpu_type and n < (one.nodes or n + 1) for name, n in each] for one in windows]
        return cls(windows, np.array(nodes, dtype=np.bool_), round_s)

    def at(self, now_s: float) -> Windows:
        """The windows as a round now sees them."""
        begins_s = np.array([window.next_begin_s(now_s) for window in self.windows])
        length_s = np.array([window.length_s for window in self.windows])
        every_s = np.array([window.every_s for window in self.windows])
        return Windows(
            begins_s=begins_s,
            ends_s=begins_s + length_s,
            gap_s=every_s - length_s,
            nodes=self.nodes,
            team=np.full(len(self.windows), -1),
        )

    def closed(self, now_s: float) -> Bools:
        """Nodes (N,) whose window goes on, or begins before the next round."""
        windows = self.at(now_s)
        return np.asarray(self.nodes[(windows.begins_s < self.round_s) & (windows.ends_s > 0)].any(axis=0))

    def next_end_s(self, now_s: float) -> float:
        """When the first of the windows ends that go on or are to come; inf: none is."""
        ends_s = self.at(now_s).ends_s
        return now_s + float(ends_s[ends_s > 0].min(initial=inf))

    def stays(self, problem: Problem, *, min_run_s: float) -> Stays:
        """How long jobs need GPUs: for the steps that the policy sees, a restart and the round in which they stop."""
        slowest = slowest_rates(problem)
        steps = np.where(np.isfinite(slowest), problem.remaining_steps[:, None], inf)
        around_s: Floats = problem.restart_s + self.round_s
        length_s = steps / np.where(np.isfinite(slowest), slowest, 1) + around_s[:, None]
        return Stays(length_s, around_s + min_run_s)
