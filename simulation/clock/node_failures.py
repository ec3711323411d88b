"""Failures and repairs of nodes: drawn from exponential distributions, or as recorded."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Protocol, Self

import numpy as np

from allocation.types import Bools, Floats


class Failures(Protocol):
    """What the rules of rounds read: which nodes (N,) are down, and how long each is expected to stay up."""

    mean_up_s: Floats
    down: Bools

    @property
    def next_s(self) -> float:
        """When a node next fails or is repaired; inf: never."""

    def pass_until(self, now_s: float) -> Bools:
        """Advance time; returns the nodes (N,) that failed meanwhile, including those already repaired."""


@dataclass(eq=False)
class RecordedFailures:
    """Each node is up in its recorded intervals (start, end) in seconds, in order and apart; mean_up_s is an estimate.

    A node without intervals is always up.
    """

    mean_up_s: Floats
    intervals: Sequence[Sequence[tuple[float, float]]]
    down: Bools = field(init=False)
    _now_s: float = -1.0

    def __post_init__(self) -> None:
        self.down = np.zeros(len(self.intervals), dtype=np.bool_)
        self.pass_until(0.0)

    @property
    def next_s(self) -> float:
        """When a node next fails or is repaired; inf: never."""
        turns = (turn for of_node in self.intervals for interval in of_node for turn in interval)
        return min((turn for turn in turns if turn > self._now_s), default=inf)

    def pass_until(self, now_s: float) -> Bools:
        """Advance time; returns the nodes (N,) that failed meanwhile, including those already repaired."""
        before_s, self._now_s = self._now_s, now_s
        recorded = [bool(of_node) for of_node in self.intervals]
        up = [any(start <= now_s < end for start, end in of_node) for of_node in self.intervals]
        ended = [any(before_s < end <= now_s for _, end in of_node) for of_node in self.intervals]
        self.down = np.array(recorded) & ~np.array(up)
        failed: Bools = np.array(recorded) & np.array(ended)
        return failed


@dataclass(eq=False)
class NodeFailures:
    """Each node (N,) alternates between up and down for exponentially distributed times, from its own stream.

    mean_up_s (N,) and mean_down_s (N,): their means.
    """

    mean_up_s: Floats
    mean_down_s: Floats
    chances: list[np.random.Generator]
    down: Bools = field(init=False)
    _until_s: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.down = np.zeros(len(self.chances), dtype=np.bool_)
        drawn = zip(self.chances, self.mean_up_s.tolist(), strict=True)
        self._until_s = np.array([chance.exponential(mean_s) for chance, mean_s in drawn])

    @classmethod
    def of(cls, nodes: int, *, mean_up_s: float | Floats, mean_down_s: float | Floats, seed: int) -> Self:
        """All nodes start up. One mean holds for all nodes."""
        up_s, down_s = (np.broadcast_to(np.asarray(mean, dtype=np.float64), nodes) for mean in (mean_up_s, mean_down_s))
        return cls(up_s, down_s, np.random.default_rng(seed).spawn(nodes))

    @property
    def next_s(self) -> float:
        """When a node next fails or is repaired; inf: never."""
        return float(self._until_s.min(initial=inf))

    def pass_until(self, now_s: float) -> Bools:
        """Advance time; returns the nodes (N,) that failed meanwhile, including those already repaired."""
        failed = np.zeros(len(self.chances), dtype=np.bool_)
        for node in np.flatnonzero(self._until_s <= now_s).tolist():
            while self._until_s[node] <= now_s:
                self.down[node] = not self.down[node]
                failed[node] |= self.down[node]
                mean_s = self.mean_down_s if self.down[node] else self.mean_up_s
                self._until_s[node] += self.chances[node].exponential(mean_s[node])
        return failed
