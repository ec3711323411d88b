"""Filling of GPUs that become free between two decisions: waiting jobs start there, in order, as a queue would.

CPUs and memory are looked at by the next decision only.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from allocation.inventory import Inventory
from allocation.problem import Problem
from allocation.quota_lending import RemainingTypeQuotas
from allocation.quotas import Quotas
from estimation.types import Bools, Ints


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
    held: Ints
    """What rows (M,) hold when it begins, a configuration or -1."""
    _by_type: RemainingTypeQuotas | None = field(init=False, default=None)
    _nodes_of: Ints = field(init=False)
    """The set of nodes that each row (M,) may use, from 1; 0: all."""
    _in_vain: Bools = field(init=False)
    """Configurations (sets of nodes + 1, K) for which no GPUs were found: fewer and fewer are free."""

    def __post_init__(self) -> None:
        rows, K = self.problem.rate.shape
        node_set = self.inventory.node_set
        self._nodes_of = np.zeros(rows, dtype=np.int64) if node_set is None else node_set + 1
        self._in_vain = np.zeros((int(self._nodes_of.max(initial=0)) + 1, K), dtype=np.bool_)

    @classmethod
    def of(cls, problem: Problem, inventory: Inventory, quotas: Quotas, held: Ints, owner: Ints) -> "Filling":
        """What rows hold, as configurations (L,), and the row that holds each GPU (G,)."""
        used, running = quotas.left_gpus.copy(), np.flatnonzero(held >= 0)
        for column in quotas.group.T:
            of_group = running[column[running] >= 0]
            np.subtract.at(used, column[of_group], problem.gpus[held[of_group]])
        return cls(problem, inventory, quotas, owner < 0, used, held)

    def starts(self, queue: Ints, *, strict: bool) -> Iterator[Start]:
        """Start rows in this order; a strict queue stops at the first that does not fit.

        Rows that cannot fit are passed over at once, and one that fits by number is tried once for all that are alike:
        the steps grow with the starts, not with the queue.
        """
        self._by_type = self._type_quotas(queue)
        while (able := np.flatnonzero(self._fits(queue).any(axis=1))).size:
            first = int(able[0])
            if strict and first > 0:
                return
            start = self._start(int(queue[first]))
            if start is not None:
                self._take(start)
                yield start
                queue = queue[first + 1 :]
            elif strict:
                return

    def _type_quotas(self, queue: Ints) -> RemainingTypeQuotas | None:
        """What is left of quotas on types: guarantees are kept for jobs that run or wait."""
        if self.quotas.by_type is None:
            return None
        running = np.flatnonzero(self.held >= 0)
        quotas = self.quotas.by_type.demanded(self.problem, among=np.append(running, queue))
        return RemainingTypeQuotas(quotas, self.problem.capacity).take_all(self.problem.usage, self.held)

    def _start(self, row: int) -> Start | None:
        """Start a row where it is fastest; None: nowhere, which holds for all rows that may use the same nodes."""
        rate, fits = self.problem.rate[row], self._fits(np.array([row]))[0]
        able = np.flatnonzero(fits)
        for k in able[np.argsort(-rate[able], kind="stable")].tolist():
            if (found := self._gpus_for(row, k)) is not None:
                return Start(row, k, found)
            self._in_vain[self._nodes_of[row], k] = True
        return None

    def _fits(self, queue: Ints) -> Bools:
        """Configurations (q, K) for which enough GPUs are free and within quotas, and that were not tried in vain."""
        free = np.bincount(self.inventory.gpu_type[self.free], minlength=len(self.problem.capacity))
        quota = np.append(self.quota_left.astype(float), np.inf)[self.quotas.group[queue]].min(axis=1, initial=np.inf)
        possible = np.asarray((self.problem.usage <= free[:, None]).all(axis=0))
        if not possible.any():
            return np.zeros((len(queue), len(possible)), dtype=np.bool_)
        within = self.problem.gpus <= quota[:, None]
        fits: Bools = possible & (self.problem.rate[queue] > 0) & within & ~self._in_vain[self._nodes_of[queue]]
        if self._by_type is not None:
            usage = self.problem.usage
            fits &= ~(self._by_type.beyond_limits(usage) | self._by_type.beyond_quotas(usage))[queue]
        return fits

    def _gpus_for(self, row: int, k: int) -> Ints | None:
        """Free GPUs for the configuration, on the fullest nodes that hold its parts; None: there are none."""
        usage, nodes = self.problem.usage[:, k], int(self.problem.nodes[k])
        if (usage > 0).sum() > 1 or (nodes > 1 and self.inventory.domains):
            return None  # a decision finds these
        gpu_node, gpus = self.inventory.gpu_node, int(usage.max())
        on_type, open_to = self.inventory.gpu_type == usage.argmax(), self.inventory.open_to(row)
        return on_fullest_nodes(gpu_node, self.free & on_type & open_to[gpu_node], gpus=gpus, nodes=nodes)

    def _take(self, start: Start) -> None:
        self.free[start.gpus] = False
        if self._by_type is not None:
            self._by_type.take(start.row, [(int(self.inventory.gpu_type[start.gpus[0]]), len(start.gpus))])
        for group in self.quotas.group[start.row].tolist():
            if group >= 0:
                self.quota_left[group] -= len(start.gpus)


def on_fullest_nodes(gpu_node: Ints, free: Bools, *, gpus: int, nodes: int) -> Ints | None:
    """So many of the free GPUs, in equal parts on so many nodes, those with the fewest free ones; None: too few."""
    each = -(-gpus // nodes)
    there = np.bincount(gpu_node[free], minlength=int(gpu_node.max(initial=-1)) + 1)
    able = np.flatnonzero(there >= each)
    if len(able) < nodes:
        return None
    chosen = able[np.argsort(there[able], kind="stable")[:nodes]].tolist()
    return np.concatenate([np.flatnonzero(free & (gpu_node == node))[:each] for node in chosen])[:gpus]
