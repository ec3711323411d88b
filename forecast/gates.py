"""Jobs that may not run yet: those that wait for others to end, and tasks of arrays beyond the limit at a time."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from estimation.types import Bools, Ints


@dataclass(frozen=True, eq=False)
class Waits:
    """What the m jobs of a present wait for beside GPUs.

    parents: of some rows, those whose ends they wait for; array (m,) the array of each row that has a limit, else -1;
    at_a_time (A,) the limit of each array.
    """

    parents: dict[int, frozenset[int]]
    array: Ints
    at_a_time: Ints

    @classmethod
    def none(cls, jobs: int) -> Self:
        return cls({}, np.full(jobs, -1), np.zeros(0, dtype=np.int64))


@dataclass(eq=False)
class Gates:
    """Rows that are closed in one future, and those that the end of a row opens."""

    waits: Waits
    closed: set[int] = field(default_factory=set)
    _left: dict[int, set[int]] = field(default_factory=dict)
    """Parents that have not ended, of rows that wait for them."""
    _children: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    _room: list[int] = field(default_factory=list)
    """Tasks that each array may still have in the queue."""
    _next: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Tasks of each array that wait for room only, in their order."""

    @classmethod
    def of(cls, waits: Waits, running: Bools) -> Self:
        """Close what may not run now; running (m,) rows count against the limits of their arrays."""
        limited = waits.array[running & (waits.array >= 0)]
        busy = np.bincount(limited, minlength=len(waits.at_a_time))
        gates = cls(waits, _room=(waits.at_a_time - busy).tolist())
        gates._close(np.flatnonzero(~running).tolist())
        return gates

    def _close(self, waiting: Sequence[int]) -> None:
        for row in waiting:
            parents = self.waits.parents.get(row)
            if parents:
                self._left[row] = set(parents)
            for parent in parents or ():
                self._children[parent].append(row)
            if parents or not self._admit(row):
                self.closed.add(row)

    def _admit(self, row: int) -> bool:
        """Whether the array of the row has room; where it has none, the row is next in its turn."""
        array = int(self.waits.array[row])
        if array < 0:
            return True
        if self._room[array] <= 0:
            self._next[array].append(row)
            return False
        self._room[array] -= 1
        return True

    def opened_by(self, ended: int) -> Collection[int]:
        """Rows that may run since this one has ended: the next task of its array, and children of no other parent."""
        opened = [*self._next_task(ended), *(row for row in self._freed(ended) if self._admit(row))]
        self.closed.difference_update(opened)
        return opened

    def _next_task(self, ended: int) -> Iterator[int]:
        array = int(self.waits.array[ended])
        if array < 0:
            return
        if self._next[array]:
            yield self._next[array].pop(0)
        else:
            self._room[array] += 1

    def _freed(self, ended: int) -> Iterator[int]:
        for child in self._children.pop(ended, ()):
            self._left[child].discard(ended)
            if not self._left[child]:
                yield child
