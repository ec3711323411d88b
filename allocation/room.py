"""What is left of a round while it is being filled."""

from collections.abc import Sequence
from math import inf
from operator import ge

import numpy as np

from allocation.arrays import Bools, Ints
from allocation.limits import Limits
from allocation.problem import Problem


class Room:
    """GPUs left per type, and GPUs that each group may still use; plain lists, for they are read row by row."""

    def __init__(self, problem: Problem, limits: Limits, reserved: Bools | None = None) -> None:
        self._usage = problem.usage
        self._needs = [[(j, u) for j, u in enumerate(column) if u] for column in problem.usage.T.tolist()]
        self._gpus: list[int] = problem.gpus.tolist()
        self._group = limits.group
        self.free: list[int] = problem.capacity.tolist()
        """GPUs left of each type."""
        self._left: list[int] = limits.left_gpus.tolist()
        self._held = problem.held
        self._awaited = [0] * len(self.free)
        self._reserved = set() if reserved is None else set(np.flatnonzero(reserved).tolist())
        self._has_reserved: set[int] = set()

    def fits(self, i: int, k: int) -> bool:
        """Whether job i can have configuration k now; what is reserved is only for those who hold it."""
        needs = self._needs[k]
        open_to_i = not self._reserved or self._held[i] == k or not any(j in self._reserved for j, _ in needs)
        return open_to_i and self.allows(i, k) and all(self.free[j] >= u for j, u in needs)

    def reserve(self, i: int, k: int) -> None:
        """Keep others from starting on the types of k, if job i lacks only GPUs whose locks end; once per job."""
        needs = self._needs[k]
        lacks = any(self.free[j] < u for j, u in needs)
        if self._held[i] >= 0 or i in self._has_reserved or not lacks or not self.allows(i, k):
            return
        if all(self.free[j] + self._awaited[j] >= u for j, u in needs):
            self._reserved.update(j for j, _ in needs)
            self._has_reserved.add(i)

    def allows(self, i: int, k: int) -> bool:
        """Whether the limits let job i have configuration k now."""
        return all(self._left[g] >= self._gpus[k] for g in self._groups_of(i))

    def take(self, i: int, k: int, *, until_s: float = inf) -> None:
        """Give configuration k to job i; where its lock ends, others may wait for that."""
        for j, u in self._needs[k]:
            self.free[j] -= u
            self._awaited[j] += u if until_s < inf else 0
        for g in self._groups_of(i):
            self._left[g] -= self._gpus[k]

    def _groups_of(self, i: int) -> list[int]:
        return [g for g in self._group[i].tolist() if g >= 0] if self._left else []

    def holds(self) -> Bools:
        """Which configurations (K,) the GPUs left could hold."""
        return np.asarray((self._usage <= np.array(self.free)[:, None]).all(axis=0))

    def still_open(self) -> tuple[list[int], list[bool]]:
        """Which configurations (K,) the GPUs left could hold, and how many of each type (n,) that takes."""
        holds = self.holds()
        return self._usage[:, holds].max(axis=1, initial=0).tolist(), holds.tolist()

    def has(self, gpus: Sequence[int]) -> bool:
        """Whether so many GPUs of each type (n,) are left."""
        return all(map(ge, self.free, gpus))

    @property
    def awaited(self) -> bool:
        """Whether there are GPUs whose locks end."""
        return any(self._awaited)

    @property
    def full(self) -> bool:
        """Whether no GPU is left."""
        return max(self.free, default=0) <= 0


def room_after(problem: Problem, limits: Limits, picks: Ints) -> Room:
    """Give what these picks leave."""
    room = Room(problem, limits)
    for i in np.flatnonzero(picks >= 0).tolist():
        room.take(i, int(picks[i]))
    return room
