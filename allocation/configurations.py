"""The configurations that an inventory offers: how many GPUs, of which type, on how many nodes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from allocation.arrays import Ints


@dataclass(frozen=True, eq=False)
class Configurations:
    """K configurations of n GPU types: usage (n, K) GPUs of each type, on nodes (K,) nodes in equal parts."""

    usage: Ints
    nodes: Ints

    @classmethod
    def of(cls, node_gpus: Sequence[Sequence[int]], gangs: Iterable[int]) -> Self:
        """Give every gang on the fewest nodes of each type; node_gpus[j] lists the GPUs of type j's nodes."""
        wanted = sorted(set(gangs))
        columns = [
            (j, g, d) for j, sizes in enumerate(node_gpus) for g in wanted if (d := fewest_nodes(sizes, g)) is not None
        ]
        usage = np.zeros((len(node_gpus), len(columns)), dtype=np.int64)
        for k, (j, g, _) in enumerate(columns):
            usage[j, k] = g
        return cls(usage, np.array([d for _, _, d in columns], dtype=np.int64))

    @property
    def gpus(self) -> Ints:
        """Total GPUs of each configuration (K,)."""
        total: Ints = self.usage.sum(axis=0)
        return total

    @property
    def gpu_type(self) -> Ints:
        """The type (K,) that gives a configuration most of its GPUs."""
        most: Ints = self.usage.argmax(axis=0)
        return most


def fewest_nodes(node_gpus: Sequence[int], gang: int) -> int | None:
    """How few of these nodes hold the gang in equal parts, or None."""
    divisors = (d for d in range(1, min(gang, len(node_gpus)) + 1) if gang % d == 0)
    return next((d for d in divisors if sum(size >= gang // d for size in node_gpus) >= d), None)


def gang_sizes(least: int, most: int) -> tuple[int, ...]:
    """Give the sizes that an elastic job may take: least, most, and the powers of two between."""
    powers = {1 << b for b in range(most.bit_length()) if least < 1 << b < most}
    return tuple(sorted({least, most} | powers))
