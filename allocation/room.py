"""What is left of a round while it is being filled."""

import numpy as np

from allocation.arrays import Bools, Ints
from allocation.limits import Limits
from allocation.problem import Problem


class Room:
    """GPUs left per type, and GPUs that each group may still use; plain lists, for they are read row by row."""

    def __init__(self, problem: Problem, limits: Limits) -> None:
        self._needs = [[(j, u) for j, u in enumerate(column) if u] for column in problem.usage.T.tolist()]
        self._gpus: list[int] = problem.gpus.tolist()
        self._groups = [[g for g in row if g >= 0] for row in limits.group.tolist()]
        self._free: list[int] = problem.capacity.tolist()
        self._left: list[int] = limits.left_gpus.tolist()

    def fits(self, i: int, k: int) -> bool:
        """Whether job i can have configuration k now."""
        return self.allows(i, k) and all(self._free[j] >= u for j, u in self._needs[k])

    def allows(self, i: int, k: int) -> bool:
        """Whether the limits let job i have configuration k now."""
        return all(self._left[g] >= self._gpus[k] for g in self._groups[i])

    def take(self, i: int, k: int) -> None:
        """Give configuration k to job i."""
        for j, u in self._needs[k]:
            self._free[j] -= u
        for g in self._groups[i]:
            self._left[g] -= self._gpus[k]

    def holds(self) -> Bools:
        """Which configurations (K,) the GPUs left could hold."""
        return np.array([all(self._free[j] >= u for j, u in needs) for needs in self._needs], dtype=np.bool_)

    @property
    def full(self) -> bool:
        """Whether no GPU is left."""
        return max(self._free, default=0) <= 0


def room_after(problem: Problem, limits: Limits, picks: Ints) -> Room:
    """Give what these picks leave."""
    room = Room(problem, limits)
    for i, k in enumerate(picks.tolist()):
        if k >= 0:
            room.take(i, k)
    return room
