"""Inventory of the cluster as arrays: GPUs on nodes, their holders, and the CPUs and memory of nodes."""

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from allocation.types import Bools, Floats, Ints


class InvalidInventory(ValueError):
    """An array of the inventory has the wrong length or names a node that does not exist."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Inventory:
    """G GPUs on N nodes, for m jobs.

    gpu_node (G,) the node of a GPU; node_type (N,) the GPU type of a node; holder (G,) the row that holds the GPU now,
    or -1; releasing (G,) still being vacated by a job that is not a row; node_cpus (N,) and node_memory_mib (N,) what
    the rows' jobs may use; cpus_per_gpu (m,), memory_per_gpu_mib (m,); uneven (m,) nodes may carry different numbers
    of the job's GPUs.
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

    def __post_init__(self) -> None:
        G, N, m = len(self.gpu_node), len(self.node_type), len(self.uneven)
        lengths = (G, N, G, G, N, N, m, m, m)
        for column, length in zip(fields(self), lengths, strict=True):
            if np.shape(getattr(self, column.name)) != (length,):
                raise InvalidInventory(f"{column.name} must have shape ({length},)")
        if G and not 0 <= self.gpu_node.min() <= self.gpu_node.max() < N:
            raise InvalidInventory("gpu_node names a node that does not exist")
        if G and not -1 <= self.holder.min() <= self.holder.max() < m:
            raise InvalidInventory("holder names a job that does not exist")

    @cached_property
    def vacant(self) -> Bools:
        """GPUs (G,) that no job uses."""
        vacant: Bools = (self.holder < 0) & ~self.releasing
        return vacant

    @cached_property
    def gpu_type(self) -> Ints:
        """The type of each GPU (G,)."""
        types: Ints = self.node_type[self.gpu_node]
        return types
