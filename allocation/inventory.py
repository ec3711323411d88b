"""Inventory of the cluster as arrays: GPUs on nodes, their holders, and the CPUs and memory of nodes."""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Self

import numpy as np

from allocation.demands import Demands
from allocation.gangs import servable_gpus
from allocation.types import Bools, Floats, Ints

LOSS_CLASS_RATIO = 4.0
"""Between classes of nodes: estimates of rates are rough, and a finer order would cost tight placement."""

SLOW_CLASS_RATIO = 1.1
"""Between classes of GPUs by speed."""


class InvalidInventory(ValueError):
    """An array of the inventory has the wrong length or names a node that does not exist."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Inventory:
    """G GPUs on N nodes, for m jobs.

    gpu_node (G,) the node of a GPU; node_type (N,) the GPU type of a node; holder (G,) the row that holds the GPU now,
    or -1; releasing (G,) still being vacated by a job that is not a row; node_cpus (N,) and node_memory_mib (N,) what
    the rows' jobs may use; cpus_per_gpu (m,), memory_per_gpu_mib (m,); uneven (m,) nodes may carry different numbers
    of the job's GPUs.

    Where some jobs may not use all nodes, node_sets (S, N) are sets of nodes, and node_set (m,) is the set that a job
    may use, or -1 for all nodes. None: all jobs may use all nodes.

    node_domain (N,): all nodes of a gang are of one domain, an engine. None: there is one.

    node_loss_rate (N,): expected losses of a node per second, above 0. None: of all nodes the same.

    gpu_slower_by (G,): part of 1 by which a GPU is slower than its type. None: no GPU is known to be slow.

    node_price (N,): price of a GPU of the node per hour. None: of all nodes of a type the same.

    node_least (N, 2): CPUs and MiB that the node's engine books for each GPU at least. None: nothing is booked.

    row_booked (m, 2): CPUs and MiB that an engine has booked for each GPU that a job holds, for as long as it is not
    restarted; 0: what it asks for. None: nothing beyond what jobs ask for.

    demands: what jobs would have beyond what they ask for, and by which they are placed beside others. None: nothing.
    """

    gpu_node: Ints
    node_type: Ints
    holder: Ints
    releasing: Bools
    node_cpus: Floats
    node_memory_mib: Floats
    cpus_per_gpu: Floats
    memory_per_gpu_mib: Floats
    uneven: Bools
    node_set: Ints | None = None
    node_sets: Bools | None = None
    node_domain: Ints | None = None
    node_loss_rate: Floats | None = None
    gpu_slower_by: Floats | None = None
    node_price: Floats | None = None
    node_least: Floats | None = None
    row_booked: Floats | None = None
    demands: Demands | None = None

    def __post_init__(self) -> None:
        G, N, m = len(self.gpu_node), len(self.node_type), len(self.uneven)
        lengths = (G, N, G, G, N, N, m, m, m)
        for column, length in zip(fields(self), lengths, strict=False):
            self._refuse_shape(column.name, (length,))
        if self.node_set is not None:
            self._refuse_shape("node_set", (m,))
            self._refuse_shape("node_sets", (int(self.node_set.max(initial=-1)) + 1, N))
        optional = {"node_domain": (N,), "node_loss_rate": (N,), "node_price": (N,), "node_least": (N, 2)}
        for name, shape in (optional | {"row_booked": (m, 2), "gpu_slower_by": (G,)}).items():
            if getattr(self, name) is not None:
                self._refuse_shape(name, shape)
        if self.demands is not None and (self.demands.share.shape, len(self.demands.profile)) != ((N, 2), m):
            raise InvalidInventory(f"demands must be those of {m} jobs on {N} nodes")
        if G and not 0 <= self.gpu_node.min() <= self.gpu_node.max() < N:
            raise InvalidInventory("gpu_node names a node that does not exist")
        if G and not -1 <= self.holder.min() <= self.holder.max() < m:
            raise InvalidInventory("holder names a job that does not exist")

    def _refuse_shape(self, name: str, shape: tuple[int, ...]) -> None:
        if np.shape(getattr(self, name)) != shape:
            raise InvalidInventory(f"{name} must have shape {shape}")

    def of_gpus(self, kept: Bools) -> Self:
        """The inventory with those GPUs (G,) alone; nodes keep their numbers."""
        slower_by = None if self.gpu_slower_by is None else self.gpu_slower_by[kept]
        columns = {name: getattr(self, name)[kept] for name in ("gpu_node", "holder", "releasing")}
        return replace(self, **columns, gpu_slower_by=slower_by)

    def of_rows(self, rows: Ints, holder: Ints) -> Self:
        """The inventory for some of the rows, whose GPUs are held as told (G,)."""
        sets = None if self.node_set is None else self.node_set[rows]
        return replace(
            self,
            holder=holder,
            cpus_per_gpu=self.cpus_per_gpu[rows],
            memory_per_gpu_mib=self.memory_per_gpu_mib[rows],
            uneven=self.uneven[rows],
            node_set=sets,
            row_booked=None if self.row_booked is None else self.row_booked[rows],
            demands=self.demands and self.demands.of_rows(rows),
            node_sets=None if sets is None or self.node_sets is None else self.node_sets[: sets.max(initial=-1) + 1],
        )

    def booked(self, rows: Ints, nodes: Ints, goes_on: Bools) -> tuple[Floats, Floats]:
        """CPUs and MiB (g,) for a GPU of each row on the node beside it, where its job may go on with what it has."""
        cpus, memory_mib = self.cpus_per_gpu[rows], self.memory_per_gpu_mib[rows]
        if self.node_least is None:
            return cpus, memory_mib
        amount = np.maximum(np.column_stack([cpus, memory_mib]), self.node_least[nodes])
        if self.row_booked is not None:
            amount = np.maximum(amount, np.where(goes_on[:, None], self.row_booked[rows], 0))
        return amount[:, 0], amount[:, 1]

    def goes_on(self, owner: Ints) -> Bools:
        """GPUs (G,) of rows that are to own those that they hold, and no others: their jobs are not restarted."""
        same = (owner >= 0) & (owner == self.holder)
        kept, owned, held = (
            np.bincount(rows, minlength=len(self.uneven))
            for rows in (owner[same], owner[owner >= 0], self.holder[self.holder >= 0])
        )
        stays = np.append((kept == owned) & (kept == held), np.zeros(1, dtype=np.bool_))  # the last: nobody's
        going_on: Bools = same & stays[owner]
        return going_on

    def servable(
        self, i: int, nodes: Ints, *, gpus: Ints, cpus: Floats, memory_mib: Floats, goes_on: bool = False
    ) -> Ints:
        """GPUs of these that each of the nodes can serve to job i with so many CPUs and MiB."""
        if self.node_least is None:
            each = float(self.cpus_per_gpu[i]), float(self.memory_per_gpu_mib[i])
            if each == (0.0, 0.0):
                return np.maximum(gpus, 0)
            return servable_gpus(gpus, cpus, memory_mib, cpus_per_gpu=each[0], memory_per_gpu_mib=each[1])
        booked = self.booked(np.full(len(nodes), i), nodes, np.full(len(nodes), goes_on))
        return servable_gpus(gpus, cpus, memory_mib, cpus_per_gpu=booked[0], memory_per_gpu_mib=booked[1])

    @cached_property
    def restricted(self) -> Bools:
        """Jobs (m,) that may not use all nodes."""
        if self.node_set is None:
            return np.zeros(len(self.uneven), dtype=np.bool_)
        restricted: Bools = self.node_set >= 0
        return restricted

    def open_to(self, i: int) -> Bools:
        """Nodes (N,) that job i may use."""
        if self.node_set is None or self.node_sets is None or self.node_set[i] < 0:
            return np.ones(len(self.node_type), dtype=np.bool_)
        nodes: Bools = self.node_sets[self.node_set[i]]
        return nodes

    @cached_property
    def vacant(self) -> Bools:
        """GPUs (G,) that no job uses."""
        vacant: Bools = (self.holder < 0) & ~self.releasing
        return vacant

    @cached_property
    def domains(self) -> list[Bools]:
        """The nodes (N,) of each domain; empty if there is one."""
        if self.node_domain is None:
            return []
        labels = np.unique(self.node_domain).tolist()
        return [self.node_domain == label for label in labels] if len(labels) > 1 else []

    @cached_property
    def loss_class(self) -> Ints:
        """How often nodes (N,) are lost: 0 for the steadiest, 1 for those lost about four times as often, and so on."""
        if self.node_loss_rate is None or not self.node_loss_rate.size:
            return np.zeros(len(self.node_type), dtype=np.int64)
        ratio = self.node_loss_rate / self.node_loss_rate.min()
        classes: Ints = np.rint(np.log(ratio) / np.log(LOSS_CLASS_RATIO)).astype(np.int64)
        return classes

    @cached_property
    def slow_class(self) -> Ints:
        """How slow GPUs (G,) are: 0 for those as fast as their type, 1 for those about 10 % slower, and so on."""
        if self.gpu_slower_by is None:
            return np.zeros(len(self.gpu_node), dtype=np.int64)
        steps = np.rint(-np.log1p(-self.gpu_slower_by) / np.log(SLOW_CLASS_RATIO)).astype(np.int64)
        classes: Ints = np.where(self.gpu_slower_by > 0, np.maximum(steps, 1), 0)
        return classes

    @cached_property
    def slow_classes(self) -> int:
        """Number of speed classes of the GPUs; 1 if no GPU is slow."""
        return int(self.slow_class.max(initial=0)) + 1

    def by_slow_class(self, gpus: Bools) -> Ints:
        """How many of these GPUs (G,) each node has of each class: (N, classes)."""
        N, classes = len(self.node_type), self.slow_classes
        place = self.gpu_node[gpus] * classes + self.slow_class[gpus]
        return np.bincount(place, minlength=N * classes).reshape(N, classes)

    @cached_property
    def gpu_type(self) -> Ints:
        """The type of each GPU (G,)."""
        types: Ints = self.node_type[self.gpu_node]
        return types
