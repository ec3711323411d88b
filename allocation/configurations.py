"""Configurations that a cluster offers: how many GPUs of which type, on how many nodes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import gcd
from typing import Self

import numpy as np

from allocation.gangs import fewest_nodes, fewest_uneven_nodes
from allocation.types import Bools, Ints


@dataclass(frozen=True, eq=False)
class Configurations:
    """K configurations of n GPU types: usage (n, K) GPUs of each type, on nodes (K,) nodes.

    uneven (K,) marks those of jobs whose nodes may carry different numbers of GPUs; the others are in equal parts.
    """

    usage: Ints
    nodes: Ints
    uneven: Bools

    @classmethod
    def of(
        cls,
        node_gpus: Sequence[Sequence[int]],
        gangs: Iterable[int],
        *,
        uneven: Iterable[int] = (),
        domains: Sequence[Sequence[str]] | None = None,
        mixed: Iterable[int] = (),
    ) -> Self:
        """Give every gang on the fewest nodes of each type, and those that are mixed on any two types together.

        node_gpus[j] lists the GPUs of type j's nodes, and domains[j] the domain of each: a gang keeps to one domain.
        """
        parts = [_by_domain(gpus, domains[j] if domains else ()) for j, gpus in enumerate(node_gpus)]
        rules = [(fewest_nodes, sorted(set(gangs)), False), (fewest_uneven_nodes, sorted(set(uneven)), True)]
        columns = [
            ({j: gang}, count, is_uneven)
            for fewest, wanted, is_uneven in rules
            for j, sizes in enumerate(parts)
            for gang in wanted
            if (count := min(filter(None, (fewest(part, gang) for part in sizes)), default=None)) is not None
        ]
        columns += [(*column, False) for gang in sorted(set(mixed)) for column in _of_two_types(node_gpus, gang)]
        usage = np.zeros((len(node_gpus), len(columns)), dtype=np.int64)
        for k, (used, _, _) in enumerate(columns):
            usage[list(used), k] = list(used.values())
        nodes = np.array([column[1] for column in columns], dtype=np.int64)
        return cls(usage, nodes, np.array([column[2] for column in columns], dtype=np.bool_))

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


def _by_domain(gpus: Sequence[int], domains: Sequence[str]) -> list[Sequence[int]]:
    """GPUs of the nodes of one type, by domain."""
    if len(set(domains)) < 2:
        return [gpus]
    return [[n for n, its in zip(gpus, domains, strict=True) if its == domain] for domain in sorted(set(domains))]


def _of_two_types(node_gpus: Sequence[Sequence[int]], gang: int) -> Iterator[tuple[dict[int, int], int]]:
    """Every way to part the gang between two types, as GPUs by type, on as few nodes of equal parts as hold it."""
    for i, j in combinations(range(len(node_gpus)), 2):
        for used in ({i: part, j: gang - part} for part in range(1, gang)):
            for each in range(gcd(*used.values()), 0, -1):
                whole = gang % each == 0 and all(gpus % each == 0 for gpus in used.values())
                if whole and all(sum(s >= each for s in node_gpus[t]) >= gpus // each for t, gpus in used.items()):
                    yield used, gang // each
                    break


def gang_sizes(least: int, most: int) -> tuple[int, ...]:
    """Give the sizes that an elastic job may take: its least gang, doubled as often as that fits, and its largest.

    So a job whose replicas are several GPUs each, a pipeline of stages, stays in whole replicas if its ends are.
    """
    doubled = {least << b for b in range(most.bit_length()) if least << b < most}
    return tuple(sorted({least, most} | doubled))
