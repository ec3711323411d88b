"""Quotas: the most GPUs that groups of jobs, a team or a member of it, may use at once, in all and by GPU type."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from allocation.problem import Problem
from allocation.quota_lending import TypeQuotas
from allocation.types import Bools, Ints


@dataclass(frozen=True, eq=False)
class Quotas:
    """Quotas of L groups.

    group (m, D) names the groups of each job, -1 for none: its team, then the owner in it. most_gpus (L,) is what a
    group may use at once, used_gpus (L,) what its jobs that are not rows use now. by_type: quotas of teams on GPU
    types; None: there are none.
    """

    group: Ints
    most_gpus: Ints
    used_gpus: Ints
    by_type: TypeQuotas | None = None

    def __post_init__(self) -> None:
        if self.group.ndim != 2 or self.most_gpus.shape != self.used_gpus.shape:
            raise ValueError("quotas: group must be (m, D), and most_gpus and used_gpus (L,)")
        if self.group.size and not -1 <= self.group.min() <= self.group.max() < len(self.most_gpus):
            raise ValueError("quotas: a job belongs to a group that does not exist")
        in_order = np.sort(self.group, axis=1)
        if ((in_order[:, 1:] == in_order[:, :-1]) & (in_order[:, 1:] >= 0)).any():
            raise ValueError("quotas: a job is in the same group twice")

    @classmethod
    def none(cls, jobs: int) -> Self:
        """No quotas for so many jobs."""
        nothing = np.zeros(0, dtype=np.int64)
        return cls(np.zeros((jobs, 0), dtype=np.int64), nothing, nothing)

    def never_allowed(self, usage: Ints, capacity: Ints) -> Bools:
        """Configurations (m, K) that exceed a quota of the job even on an idle cluster; usage (n, K)."""
        without_limit = np.iinfo(np.int64).max
        most_gpus = np.append(self.most_gpus, without_limit)[self.group].min(axis=1, initial=without_limit)
        too_large: Bools = usage.sum(axis=0) > most_gpus[:, None]
        return too_large if self.by_type is None else too_large | self.by_type.never_allowed(usage, capacity)

    def of_rows(self, rows: Ints) -> Self:
        """The same quotas for some of the jobs."""
        return replace(self, group=self.group[rows], by_type=self.by_type and self.by_type.of_rows(rows))

    def demanded(self, problem: Problem) -> Self:
        """Guarantee to teams no more GPUs of a type than their jobs could use."""
        return replace(self, by_type=self.by_type and self.by_type.demanded(problem))

    def lent(self, problem: Problem, assignment: Ints) -> Self:
        """Guarantee to teams no more GPUs of a type than they use under an assignment (m,)."""
        return replace(self, by_type=self.by_type and self.by_type.lent(problem, assignment))

    @property
    def left_gpus(self) -> Ints:
        """GPUs that each group (L,) may still use."""
        left: Ints = self.most_gpus - self.used_gpus
        return left
