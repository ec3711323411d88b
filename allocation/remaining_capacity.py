"""Remaining capacity and quotas of a round during greedy filling, with gang reservations."""

from collections.abc import Sequence
from math import inf
from operator import ge

import numpy as np

from allocation.problem import Problem
from allocation.quota_lending import RemainingTypeQuotas
from allocation.quotas import Quotas
from allocation.types import Bools, Ints


class RemainingCapacity:
    """GPUs left per type, and those that groups and teams may still use; in plain lists, faster entry by entry."""

    def __init__(self, problem: Problem, quotas: Quotas, reserved: Bools | None = None) -> None:
        self._usage = problem.usage
        self._needs = [[(j, u) for j, u in enumerate(column) if u] for column in problem.usage.T.tolist()]
        self._gpus: list[int] = problem.gpus.tolist()
        self._group = quotas.group
        self.free: list[int] = problem.capacity.tolist()
        """GPUs left of each type."""
        self._left: list[int] = quotas.left_gpus.tolist()
        self._by_type = None if quotas.by_type is None else RemainingTypeQuotas(quotas.by_type, problem.capacity)
        self._leased: list[bool] = problem.leased.tolist() if self._by_type else []
        self._held = problem.held
        self._awaited = [0] * len(self.free)
        self._reserved = set() if reserved is None else set(np.flatnonzero(reserved).tolist())
        self._has_reserved: set[int] = set()

    def fits(self, i: int, k: int) -> bool:
        """Whether job i can have configuration k now; reserved types are only for jobs that hold k."""
        needs = self._needs[k]
        open_to_i = not self._reserved or self._held[i] == k or not any(j in self._reserved for j, _ in needs)
        return open_to_i and self.allows(i, k) and all(self.free[j] >= u for j, u in needs)

    def reserve(self, i: int, k: int) -> None:
        """Gang reservation, once per job: no other job starts on types of k if i lacks only GPUs whose locks end."""
        needs = self._needs[k]
        lacks = any(self.free[j] < u for j, u in needs)
        if self._held[i] >= 0 or i in self._has_reserved or not lacks or not self.allows(i, k):
            return
        if all(self.free[j] + self._awaited[j] >= u for j, u in needs):
            self._reserved.update(j for j, _ in needs)
            self._has_reserved.add(i)

    def allows(self, i: int, k: int) -> bool:
        """Whether the quotas allow job i configuration k now."""
        if self._by_type:
            keeps = self._leased[i] and self._held[i] == k
            if not self._by_type.allows(i, self._needs[k], keeps=keeps):
                return False
        return self.allows_in_all(i, k)

    def allows_in_all(self, i: int, k: int) -> bool:
        """Whether the quotas of all types together allow job i configuration k now."""
        return all(self._left[g] >= self._gpus[k] for g in self._groups_of(i))

    def beyond_type_limits(self) -> Bools:
        """Configurations (m, K) with which the team of each job would exceed its limit on a type."""
        return self._by_type.beyond_limits(self._usage) if self._by_type else np.zeros((len(self._group), 1), np.bool_)

    def beyond_type_quotas(self) -> Bools:
        """Configurations (m, K) for which a team would borrow more GPUs of a type than there are to borrow."""
        return self._by_type.beyond_quotas(self._usage) if self._by_type else np.zeros((len(self._group), 1), np.bool_)

    def take(self, i: int, k: int, *, until_s: float = inf) -> None:
        """Take the GPUs of configuration k for job i; where its lock ends, others may wait for them."""
        for j, u in self._needs[k]:
            self.free[j] -= u
            self._awaited[j] += u if until_s < inf else 0
        for g in self._groups_of(i):
            self._left[g] -= self._gpus[k]
        if self._by_type:
            self._by_type.take(i, self._needs[k])

    def give_back(self, i: int, k: int) -> None:
        """Undo `take` for a job whose lock has ended."""
        for j, u in self._needs[k]:
            self.free[j] += u
        for g in self._groups_of(i):
            self._left[g] += self._gpus[k]
        if self._by_type:
            self._by_type.give_back(i, self._needs[k])

    def _groups_of(self, i: int) -> list[int]:
        return [g for g in self._group[i].tolist() if g >= 0] if self._left else []

    def holds(self) -> Bools:
        """Configurations (K,) that fit the GPUs left."""
        return np.asarray((self._usage <= np.array(self.free)[:, None]).all(axis=0))

    def still_open(self) -> tuple[list[int], list[bool]]:
        """GPUs of each type (n,) that the largest fitting configurations use, and which configurations (K,) fit."""
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


def remaining_after(problem: Problem, quotas: Quotas, assignment: Ints) -> RemainingCapacity:
    """Remaining capacity after an assignment (m,)."""
    remaining = RemainingCapacity(problem, quotas)
    for i in np.flatnonzero(assignment >= 0).tolist():
        remaining.take(i, int(assignment[i]))
    return remaining
