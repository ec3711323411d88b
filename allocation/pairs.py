"""Two jobs on the same GPUs: the time that each pair of rows shares."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from allocation.arrays import Bools, Floats, Ints
from allocation.classes import Kinds
from allocation.problem import Problem


@dataclass(frozen=True, eq=False)
class Pairs:
    """P pairs, rows (P, 2), and the fraction of time, shares (P, K), that they spend together in a configuration."""

    rows: Ints
    shares: Floats

    @classmethod
    def none(cls, configurations: int) -> Self:
        """Give nobody with anybody."""
        return cls(np.zeros((0, 2), dtype=np.int64), np.zeros((0, configurations)))

    @classmethod
    def of_classes(cls, classes: Ints, time: Floats, kinds: Kinds) -> Self:
        """Give each job of a class the same part of the time (Q, K) that pairs of these classes (Q, 2) spend together.

        That of all pairs of the two together; a class with itself takes two jobs at least.
        """
        parts = [
            _within(members) if c == d else _between(members, others) for c, d, members, others in _each(classes, kinds)
        ]
        if not parts:
            return cls.none(time.shape[1])
        rows = np.concatenate([rows for rows, _ in parts])
        shares = [np.multiply.outer(part, of_classes) for (_, part), of_classes in zip(parts, time, strict=True)]
        return cls(rows, np.concatenate(shares))

    def __len__(self) -> int:
        return len(self.rows)

    def of(self, kept: Bools) -> Self:
        """Give some of them."""
        return type(self)(self.rows[kept], self.shares[kept])

    def time_of(self, jobs: int) -> Floats:
        """The time (m, K) that each of so many jobs spends together with others."""
        time = np.zeros((jobs, self.shares.shape[1]))
        for side in self.rows.T:
            np.add.at(time, side, self.shares)
        return time

    def used(self, usage: Ints) -> Floats:
        """GPUs (n,) that they use on the mean: a pair's are counted once."""
        used: Floats = usage @ self.shares.sum(axis=0)
        return used

    def rates(self, problem: Problem) -> Floats:
        """What each job (m,) does in the time that it shares, in steps/s."""
        rate = np.zeros(len(problem.weight))
        for first, second in (self.rows.T, self.rows.T[::-1]):
            np.add.at(rate, first, (rate_beside(problem, first, second) * self.shares).sum(axis=1))
        return rate


def rate_beside(problem: Problem, rows: Ints, mates: Ints) -> Floats:
    """Steps/s (P, K) of these rows in each configuration beside these mates; 0: they cannot be together."""
    if not rows.size or not problem.kept_rate.size:
        return np.zeros((len(rows), problem.rate.shape[1]))
    first, second = problem.workload[rows], problem.workload[mates]
    both = (first >= 0)[:, None] & (second >= 0)[:, None] & (problem.rate[mates] > 0)
    return np.where(both, problem.rate[rows] * problem.kept_rate[first, second], 0)


def _each(classes: Ints, kinds: Kinds) -> list[tuple[int, int, Ints, Ints]]:
    turn = np.argsort(kinds.of_row, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(kinds.count)])
    members = [turn[bounds[c] : bounds[c + 1]] for c in range(len(kinds.count))]
    return [(c, d, members[c], members[d]) for c, d in classes.tolist()]


def _between(ones: Ints, others: Ints) -> tuple[Ints, Floats]:
    """Pairs of one of each, as few as can be, and the part of all time of each: both sides laid along one line."""
    n, m = len(ones), len(others)
    cuts = np.union1d(np.arange(n + 1) * m, np.arange(m + 1) * n)
    rows = np.column_stack([ones[cuts[:-1] // m], others[cuts[:-1] // n]])
    return rows, np.diff(cuts) / (n * m)


def _within(ones: Ints) -> tuple[Ints, Floats]:
    """Pairs of two of them, each job in one; where they are odd, three take turns."""
    n = len(ones)
    odd = 3 if n % 2 else 0
    turns = np.array([[0, 1], [1, 2], [0, 2]])[:odd]
    two = np.arange(odd, n).reshape(-1, 2)
    parts = np.concatenate([np.full(len(turns), 1 / n), np.full(len(two), 2 / n)])
    return ones[np.concatenate([turns, two])], parts
