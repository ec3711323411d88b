"""Demands of jobs for CPUs and memory, by configuration, and what placed jobs leave of these on nodes (Synergy-TUNE).

They are wishes, by which a job is placed beside others that need little; nobody waits for them. What a job asks for by
name is no wish: it is in the inventory.

References
----------
.. [1] Mohan et al., OSDI 2022, "Looking Beyond GPUs for DNN Scheduling on Multi-Tenant Clusters", section 4.2.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from allocation.types import Bools, Floats, Ints

ROUNDING = 1e-6
MIB_PER_GIB = 1024


class InvalidDemands(ValueError):
    """An array has the wrong shape, or a job has a profile that does not exist."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Demands:
    """Demands of m jobs, in CPUs and GiB (2,) per GPU. Where one is 0, it is the share of a GPU of the node.

    share (N, 2), that of a GPU on each node; profile (m,) of each job; amount (P, K, 2), what jobs of a profile would
    have in a configuration; held (m, 2), what a job has, or may have again, on GPUs that it keeps.
    """

    share: Floats
    profile: Ints
    amount: Floats
    held: Floats

    def __post_init__(self) -> None:
        if self.held.shape != (len(self.profile), 2) or self.share.ndim != 2 or self.amount.ndim != 3:
            raise InvalidDemands("share must have shape (N, 2), held (m, 2) and amount (P, K, 2)")
        if self.profile.size and not 0 <= self.profile.min() <= self.profile.max() < len(self.amount):
            raise InvalidDemands("profile names a profile that does not exist")

    def of_rows(self, rows: Ints) -> Self:
        """Those of some of the jobs."""
        return replace(self, profile=self.profile[rows], held=self.held[rows])

    def of(self, assignment: Ints) -> Floats:
        """Demand (m, 2) of each job per GPU in its assigned configuration; 0, which is the share, where it has none."""
        found: Floats = np.where((assignment >= 0)[:, None], self.amount[self.profile, assignment], 0)
        return found


@dataclass(eq=False)
class DemandBooks:
    """What the demands of placed jobs leave on each node, below 0 where these are more than it has; mutable."""

    share: Floats  # (N, 2)
    left: Floats  # (N, 2)
    demand: Floats  # (m, 2)
    floor: Floats  # (m, 2) what a job asks for by name
    held: Floats  # (m, 2)

    @classmethod
    def start(cls, demands: Demands, assignment: Ints, *, capacity: Floats, asked: Floats) -> Self:
        """Nothing is placed. capacity (N, 2) of the nodes; asked (m, 2) by name, 0: nothing."""
        return cls(demands.share, capacity.astype(float), demands.of(assignment), asked, demands.held)

    def take(self, rows: Ints, nodes: Ints, keeps: Bools) -> None:
        """Book one GPU on each of these nodes (g,) for the job at the same place in `rows`; `keeps`: it is there."""
        amount = np.where(keeps[:, None], self.held[rows], self.demand[rows])
        np.subtract.at(self.left, nodes, np.where(amount > 0, amount, self.share[nodes]))

    def shortage(self, row: int, nodes: Ints, gang: int) -> Ints:
        """For a gang on each of these nodes: 0 where its demand is left, 1 where its floor is, else 2.

        With 2, others there would be lowered for it.
        """
        found = np.full(len(nodes), 2)
        for short, amount in ((1, self.floor[row]), (0, self.demand[row])):
            needs = gang * np.where(amount > 0, amount, self.share[nodes])
            found[(self.left[nodes] - needs >= -ROUNDING).all(axis=1)] = short
        return found

    def alike(self, rows: Ints) -> list[Ints]:
        """Split rows into those with the same demand and floor, the largest demand first."""
        usual = self.share.mean(axis=0) if len(self.share) else np.zeros(2)
        wants = np.hstack([np.where(self.demand[rows] > 0, self.demand[rows], usual), self.demand[rows]])
        _, group = np.unique(-np.hstack([wants, self.floor[rows]]), axis=0, return_inverse=True)
        order = np.argsort(group.ravel(), kind="stable")
        return np.split(rows[order], np.flatnonzero(np.diff(group.ravel()[order])) + 1)
