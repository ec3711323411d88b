"""Synergy-TUNE: a greedy rule that gives each job its best-case CPUs and memory, or else its proportional share."""

from dataclasses import dataclass, field
from typing import Self

import numpy as np

from allocation.demands import MIB_PER_GIB
from allocation.types import Bools, Floats, Ints

ROUNDING = 1e-6
UNITS = np.array([1, MIB_PER_GIB])
"""CPUs and MiB, in which floors are whole, in CPUs and GiB."""


class FloorsDoNotFit(ValueError):
    """The nodes cannot hold all floors at once: these are larger than proportional shares."""


@dataclass(frozen=True, eq=False)
class Shares:
    """CPUs and memory per GPU: amount (m, 2), and whether a job has its floor in place of its demand, reverted (m,)."""

    amount: Floats
    reverted: Bools


def proportional_shares(capacity: Floats, node_gpus: Ints) -> Floats:
    """Proportional share (N, 2) of a GPU on each node: capacity (N, 2) over its GPUs (N,)."""
    shares: Floats = capacity / np.maximum(node_gpus, 1)[:, None]
    return shares


def floors(gpus: Ints, fixed: Floats, capacity: Floats, node_gpus: Ints) -> Floats:
    """Floor (m, 2) of each job: what it fixes (m, 2), 0 being nothing, else the share of a GPU on its poorest node."""
    return floors_of(gpus, fixed, shares_left(gpus, fixed, capacity, node_gpus))


def shares_left(gpus: Ints, fixed: Floats, capacity: Floats, node_gpus: Ints) -> Floats:
    """Share (N, 2) of a GPU on each node.

    It is the proportional one, or less where jobs fix more than theirs and leave less. It is whole CPUs and whole MiB,
    and idle GPUs keep it, so that the floors of all jobs fit where the fixed amounts do.
    """
    rest = np.maximum(node_gpus[:, None] - gpus.T @ (fixed > 0), 1)
    left = np.maximum(capacity - gpus.T @ fixed, 0) / rest
    share: Floats = np.floor(np.minimum(proportional_shares(capacity, node_gpus), left) * UNITS) / UNITS
    return share


def floors_of(gpus: Ints, fixed: Floats, share: Floats) -> Floats:
    """What each job fixes (m, 2), 0 being nothing, else the share (N, 2) of its poorest node."""
    poorest = np.array([share[row > 0].min(axis=0) for row in gpus]).reshape(-1, 2)
    return np.where(fixed > 0, fixed, poorest)


def largest_amounts(gpus: Ints, capacity: Floats) -> Floats:
    """Most (m, 2) that each job can have per GPU, alone on its nodes: of the poorest, in whole CPUs and MiB."""
    poorest = [(capacity[row > 0] / row[row > 0, None]).min(axis=0) for row in gpus]
    most: Floats = np.floor(np.array(poorest).reshape(-1, 2) * UNITS) / UNITS
    return most


def largest_demand_first(size: Ints, demand: Floats) -> Ints:
    """Order of jobs (m,) by demand for GPUs, then CPUs, then memory, the largest first.

    Where they are placed, too, hungry jobs are then spread before others fill the nodes up.
    """
    whole = size[:, None] * demand
    order: Ints = np.lexsort((-whole[:, 1], -whole[:, 0], -size))
    return order


def tune(gpus: Ints, floor: Floats, demand: Floats, capacity: Floats, order: Ints) -> Shares:
    """Give placed jobs their demands in this order; where one does not fit, the floor, and lower others to theirs.

    Parameters
    ----------
    gpus : (m, N) int, GPUs of each job on each node.
    floor, demand : (m, 2) float, CPUs and GiB per GPU; a demand that is nowhere above the floor cannot be lowered.
    capacity : (N, 2) float, CPUs and GiB of each node.
    order : (m,) int, `largest_demand_first` in the source.

    Returns
    -------
    Shares
        Of each job the demand or, reverted, the floor: no node gives more than it has.

    Raises
    ------
    FloorsDoNotFit
        With its floor for every job a node would give more than it has.

    References
    ----------
    .. [1] Mohan et al., OSDI 2022, "Looking Beyond GPUs for DNN Scheduling on Multi-Tenant Clusters", section 4.2.
    """
    books = _Books.start(gpus, floor, demand, capacity)
    for i in order.tolist():
        books.admit(i)
    return Shares(books.amount, books.reverted)


def raise_shares(gpus: Ints, amount: Floats, wish: Floats, left: Floats, order: Ints) -> Bools:
    """Choose jobs (m,) whose shares are raised: greedily, in this order, those for which all their nodes have enough.

    Parameters
    ----------
    gpus : (m, N) int, GPUs of each job on each node.
    amount, wish : (m, 2) float, CPUs and GiB per GPU that each job has, and that it is to have.
    left : (N, 2) float, CPUs and GiB of each node that nobody has.
    order : (m,) int.
    """
    raised, left = np.zeros(len(gpus), dtype=np.bool_), left.astype(float)
    for i in order.tolist():
        rest = left - np.outer(gpus[i], wish[i] - amount[i])
        if np.all(rest[gpus[i] > 0] >= -ROUNDING):
            raised[i], left = True, rest
    return raised


def place_and_tune(
    size: Ints, floor: Floats, demand: Floats, *, capacity: Floats, node_gpus: Ints, order: Ints
) -> tuple[Ints, Shares]:
    """Place jobs of these sizes (m,) in the order of rows, where their demand fits if possible, and tune them.

    All jobs must fit by their GPUs; other parameters and errors are those of `tune`. Returns gpus (m, N), and shares.
    """
    gpus = np.zeros((len(size), len(node_gpus)), dtype=np.int64)
    books = _Books.start(gpus, floor, demand, capacity)
    for i in order.tolist():
        gpus[i] = _seats(books, i, int(size[i]), node_gpus - gpus.sum(axis=0))
        books.admit(i)
    return gpus, Shares(books.amount, books.reverted)


def _seats(books: "_Books", i: int, size: int, free: Ints) -> Ints:
    """GPUs (N,) for a job: where its demand fits, else where its floor does, else where GPUs are free."""
    fed = (np.floor(books.left_for(amount) + ROUNDING) for amount in (books.demand[i], books.floor[i]))
    for most in (*(np.minimum(free, gpus).astype(np.int64) for gpus in fed), free):
        if (seats := _tightest(most, free, size)) is not None:
            return seats
    raise ValueError(f"{size} GPUs are not free")


def _tightest(most: Ints, free: Ints, size: int) -> Ints | None:
    """Seats on the one node with the fewest free GPUs that serves all, else over nodes in this order; None: too few."""
    order = np.argsort(free, kind="stable")
    seats = np.zeros_like(most)
    if (whole := order[most[order] >= size]).size:
        seats[whole[0]] = size
        return seats
    before = np.concatenate([[0], np.cumsum(most[order])[:-1]])
    seats[order] = np.clip(size - before, 0, most[order])
    return seats if seats.sum() == size else None


@dataclass(eq=False)
class _Books:
    """CPUs and memory given so far; mutable, and private to this module."""

    gpus: Ints  # (m, N)
    floor: Floats  # (m, 2)
    demand: Floats  # (m, 2)
    left: Floats  # (N, 2)
    amount: Floats  # (m, 2)
    reverted: Bools  # (m,)
    place: dict[int, int] = field(default_factory=dict)
    """Number of jobs admitted before each admitted job."""

    @classmethod
    def start(cls, gpus: Ints, floor: Floats, demand: Floats, capacity: Floats) -> Self:
        m = len(gpus)
        return cls(gpus, floor, demand, capacity.astype(float), np.zeros((m, 2)), np.zeros(m, dtype=np.bool_))

    def left_for(self, amount: Floats) -> Floats:
        """GPUs for which each node (N,) has this amount left."""
        free = np.full_like(self.left, np.inf)
        gpus: Floats = np.divide(self.left, amount, out=free, where=amount > 0).min(axis=1)
        return gpus

    def admit(self, i: int) -> None:
        """Give job i its demand if it fits, else its floor; peers that have more than theirs are lowered for it."""
        self._set(i, self.demand[i])
        self.place[i] = len(self.place)
        if self._overdrawn.any() and np.any(self.demand[i] > self.floor[i] + ROUNDING):
            self._revert(i)
        while self._overdrawn.any():
            self._revert(self._next_to_lower())

    @property
    def _overdrawn(self) -> Bools:
        """Nodes (N,) that give more than they have."""
        overdrawn: Bools = np.any(self.left < -ROUNDING, axis=1)
        return overdrawn

    def _next_to_lower(self) -> int:
        """The peer on the fewest nodes that has most CPUs, then most memory, above its floor on an overdrawn node."""
        there = np.any(self.gpus[:, np.flatnonzero(self._overdrawn)] > 0, axis=1)
        on_node = np.flatnonzero(there)
        above = np.any(self.amount[on_node] > self.floor[on_node] + ROUNDING, axis=1)
        peers = on_node[above].tolist()  # who is not admitted has nothing
        if not peers:
            raise FloorsDoNotFit("the floors of jobs on a node are more than it has")
        found: int = min(peers, key=lambda i: (np.count_nonzero(self.gpus[i]), *-self.amount[i], self.place[i]))
        return found

    def _revert(self, i: int) -> None:
        self._set(i, self.floor[i])
        self.reverted[i] = True

    def _set(self, i: int, amount: Floats) -> None:
        self.left += np.outer(self.gpus[i], self.amount[i] - amount)
        self.amount[i] = amount
