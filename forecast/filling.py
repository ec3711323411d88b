"""Filling of GPUs that become free between two decisions: waiting jobs start there, in order, as a queue would.

CPUs and memory are looked at by the next decision only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from allocation.inventory import Inventory
from allocation.problem import Problem
from allocation.quotas import Quotas
from estimation.types import Bools, Floats, Ints


class Start(NamedTuple):
    """A row that starts, its configuration, and its GPUs (indices)."""

    row: int
    k: int
    gpus: Ints


@dataclass(eq=False)
class Filling:
    """Free GPUs, by node, and what is left of quotas, while waiting jobs are started one after the other."""

    problem: Problem
    inventory: Inventory
    quotas: Quotas
    free: Bools
    """GPUs (G,) that no job holds."""
    quota_left: Ints
    """GPUs (L,) that each group may still take."""

    @classmethod
    def of(cls, problem: Problem, inventory: Inventory, quotas: Quotas, held: Ints, owner: Ints) -> "Filling":
        """What rows hold, as configurations (L,), and the row that holds each GPU (G,)."""
        used, running = quotas.left_gpus.copy(), np.flatnonzero(held >= 0)
        for column in quotas.group.T:
            of_group = running[column[running] >= 0]
            np.subtract.at(used, column[of_group], problem.gpus[held[of_group]])
        return cls(problem, inventory, quotas, owner < 0, used)

    def starts(self, queue: Ints, *, strict: bool) -> Iterator[Start]:
        """Start rows in this order; a strict queue stops at the first that does not fit."""
        for row in queue.tolist():
            if not self.free.any():
                return
            if (start := self._start(row)) is not None:
                self._take(start)
                yield start
            elif strict:
                return

    def _start(self, row: int) -> Start | None:
        rate, gpus = self.problem.rate[row], self.problem.gpus
        free = np.bincount(self.inventory.gpu_type[self.free], minlength=len(self.problem.capacity))
        fits = (rate > 0) & (self.problem.usage <= free[:, None]).all(axis=0) & (gpus <= self._quota_of(row))
        for k in self._best_first(rate, fits):
            if (found := self._gpus_for(row, k)) is not None:
                return Start(row, k, found)
        return None

    @staticmethod
    def _best_first(rate: Floats, fits: Bools) -> Sequence[int]:
        able = np.flatnonzero(fits)
        return [int(k) for k in able[np.argsort(-rate[able], kind="stable")]]

    def _quota_of(self, row: int) -> float:
        groups = self.quotas.group[row]
        return float(min((self.quota_left[g] for g in groups.tolist() if g >= 0), default=np.inf))

    def _gpus_for(self, row: int, k: int) -> Ints | None:
        """Free GPUs for the configuration, on the fullest nodes that hold its parts; None: there are none."""
        usage, nodes = self.problem.usage[:, k], int(self.problem.nodes[k])
        if (usage > 0).sum() > 1 or (nodes > 1 and self.inventory.domains):
            return None  # a decision finds these
        on = self.free & (self.inventory.gpu_type == usage.argmax()) & self.inventory.open_to(row)[self.inventory.gpu_node]
        each = -(-int(usage.max()) // nodes)
        there = np.bincount(self.inventory.gpu_node[on], minlength=len(self.inventory.node_type))
        able = np.flatnonzero(there >= each)
        if len(able) < nodes:
            return None
        chosen = able[np.argsort(there[able], kind="stable")[:nodes]]
        parts = [np.flatnonzero(on & (self.inventory.gpu_node == node))[:each] for node in chosen.tolist()]
        return np.concatenate(parts)[: int(usage.max())]

    def _take(self, start: Start) -> None:
        self.free[start.gpus] = False
        for group in self.quotas.group[start.row].tolist():
            if group >= 0:
                self.quota_left[group] -= len(start.gpus)
