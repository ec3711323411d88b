"""Losses of nodes in a future: each node goes and comes back after exponential times, by its lifetime.

A node that sleeps, or is being woken, is gone for the first seconds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import InitVar, dataclass, field
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from allocation.inventory import Inventory
from estimation.node_lifetimes import NodeLifetime
from estimation.types import Bools, Ints

LOST_S = 900.0
"""Work that a loss without notice costs a job: half an hour between two checkpoints, of which half is lost."""


class Outage(NamedTuple):
    """A node is gone for some time, in seconds from now; its jobs lose so many seconds of their work."""

    node: int
    from_s: float
    until_s: float
    lost_s: float = LOST_S


def draw_outages(
    lifetimes: Sequence[NodeLifetime], until_s: float, chance: np.random.Generator, *, up_from_s: Sequence[float] = ()
) -> tuple[Outage, ...]:
    """Outages of all nodes until then; how long a node has been up says nothing of how long it stays.

    up_from_s: seconds until each node is up; empty: all are.
    """
    nodes = enumerate(zip_longest(lifetimes, up_from_s, fillvalue=None))
    return tuple(
        outage for node, (lifetime, at_s) in nodes for outage in _of_node(node, lifetime, at_s or 0.0, until_s, chance)
    )


def _of_node(
    node: int, lifetime: NodeLifetime | None, up_from_s: float, until_s: float, chance: np.random.Generator
) -> Iterator[Outage]:
    if up_from_s > 0:
        yield Outage(node, 0.0, up_from_s, 0.0)
    if lifetime is None:
        return
    from_s = up_from_s + chance.exponential(lifetime.mean_up_s)
    while from_s < until_s:
        back_s = from_s + chance.exponential(lifetime.mean_down_s)
        announced = chance.random() < lifetime.notified
        yield Outage(node, from_s, back_s, 0.0 if announced else LOST_S)
        from_s = back_s + chance.exponential(lifetime.mean_up_s)


@dataclass(eq=False)
class Nodes:
    """Which nodes (N,) are up in a future, the GPUs (G,) that are usable, and how many of each type (n,)."""

    inventory: Inventory
    capacity: Ints
    outages: InitVar[Sequence[Outage]]
    up: Bools = field(init=False)
    usable: Bools = field(init=False)
    _turns: list[tuple[float, Outage]] = field(init=False)
    """When a node goes or is back, the next first."""

    def __post_init__(self, outages: Sequence[Outage]) -> None:
        self.up = np.ones(len(self.inventory.node_type), dtype=np.bool_)
        self.usable = np.ones(len(self.inventory.gpu_node), dtype=np.bool_)
        self._turns = sorted((at_s, one) for one in outages for at_s in (one.from_s, one.until_s))

    @property
    def all_up(self) -> bool:
        return bool(self.up.all())

    @property
    def next_s(self) -> float:
        """When the next node goes or is back; inf: none does."""
        return self._turns[0][0] if self._turns else np.inf

    def turned(self, now_s: float) -> Iterator[tuple[Outage, Bools]]:
        """Outages that have begun or ended by now, in their order, with the GPUs (G,) of their nodes."""
        while self.next_s <= now_s:
            at_s, outage = self._turns.pop(0)
            gpus, is_back = self.inventory.gpu_node == outage.node, at_s >= outage.until_s
            self.up[outage.node] = self.usable[gpus] = is_back
            change = np.bincount(self.inventory.gpu_type[gpus], minlength=len(self.capacity))
            self.capacity = self.capacity + change if is_back else self.capacity - change
            yield outage, gpus
