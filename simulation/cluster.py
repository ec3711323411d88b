"""Cluster of a simulation: GPU types and the GPUs of each node."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from allocation.configurations import Configurations
from allocation.types import Ints

GROUP = re.compile(r"(?P<gpu_type>[A-Za-z0-9][\w.-]*)=(?P<nodes>[1-9]\d*)(?:x(?P<gpus>[1-9]\d*))?")

Placement = tuple[int, ...]
"""GPUs of a gang on each of its nodes."""


class InvalidCluster(ValueError):
    """The description of a cluster cannot be parsed; the message names the part and the expected form."""


@dataclass(frozen=True)
class Cluster:
    """n GPU types, in the order given, and the number of GPUs of each of their nodes."""

    gpu_types: tuple[str, ...]
    node_gpus: tuple[tuple[int, ...], ...]

    @classmethod
    def parse(cls, words: str) -> Self:
        """Parse `v100=8x4,p100=16`: eight nodes of four V100 and sixteen nodes of one P100."""
        nodes: dict[str, tuple[int, ...]] = {}
        for part in words.split(","):
            found = GROUP.fullmatch(part.strip())
            if found is None:
                raise InvalidCluster(f"'{part}' is not TYPE=NODES or TYPE=NODESxGPUS, as in v100=8x4,p100=16x4")
            gpus = (int(found["gpus"] or 1),) * int(found["nodes"])
            nodes[found["gpu_type"]] = nodes.get(found["gpu_type"], ()) + gpus
        return cls(tuple(nodes), tuple(nodes.values()))

    @property
    def capacity(self) -> Ints:
        """GPUs of each type (n,)."""
        return np.array([sum(nodes) for nodes in self.node_gpus], dtype=np.int64)

    @property
    def pooled(self) -> Self:
        """The same GPUs with each type on a single node, for rules that ignore placement."""
        return replace(self, node_gpus=tuple((sum(nodes),) for nodes in self.node_gpus))

    def of_types(self, gpu_types: Sequence[str]) -> Self:
        """The same cluster with its GPU types in another order."""
        order = [self.gpu_types.index(gpu_type) for gpu_type in gpu_types]
        return replace(self, gpu_types=tuple(gpu_types), node_gpus=tuple(self.node_gpus[j] for j in order))

    def placements(self, configurations: Configurations) -> list[Placement]:
        """Placement of each configuration: equal parts, or, for uneven gangs, nodes filled one after the other."""
        largest = [max(nodes) for nodes in self.node_gpus]
        columns = zip(
            configurations.gpu_type.tolist(),
            configurations.gpus.tolist(),
            configurations.nodes.tolist(),
            configurations.uneven.tolist(),
            strict=True,
        )
        return [_filled(gpus, largest[j]) if uneven else _parted(gpus, d) for j, gpus, d, uneven in columns]

    def fills(self, gpu_type: int, placement: Placement) -> bool:
        """Whether a gang on several nodes uses all their GPUs."""
        return len(placement) == 1 or min(placement) == max(self.node_gpus[gpu_type])


def _parted(gpus: int, nodes: int) -> Placement:
    least, more = divmod(gpus, nodes)
    return (least + 1,) * more + (least,) * (nodes - more)


def _filled(gpus: int, node: int) -> Placement:
    whole, rest = divmod(gpus, node)
    return (node,) * whole + ((rest,) if rest else ())
