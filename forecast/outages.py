"""Losses of nodes in a future: each node goes and comes back after exponential times, by its lifetime."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from estimation.node_lifetimes import NodeLifetime

LOST_S = 900.0
"""Work that a loss without notice costs a job: half an hour between two checkpoints, of which half is lost."""


class Outage(NamedTuple):
    """A node is gone for some time, in seconds from now; its jobs lose so many seconds of their work."""

    node: int
    from_s: float
    until_s: float
    lost_s: float = LOST_S


def draw_outages(lifetimes: Sequence[NodeLifetime], until_s: float, chance: np.random.Generator) -> tuple[Outage, ...]:
    """Outages of all nodes until then; how long a node has been up says nothing of how long it stays."""
    return tuple(
        outage for node, lifetime in enumerate(lifetimes) for outage in _of_node(node, lifetime, until_s, chance)
    )


def _of_node(node: int, lifetime: NodeLifetime, until_s: float, chance: np.random.Generator) -> Iterator[Outage]:
    from_s = chance.exponential(lifetime.mean_up_s)
    while from_s < until_s:
        back_s = from_s + chance.exponential(lifetime.mean_down_s)
        announced = chance.random() < lifetime.notified
        yield Outage(node, from_s, back_s, 0.0 if announced else LOST_S)
        from_s = back_s + chance.exponential(lifetime.mean_up_s)
