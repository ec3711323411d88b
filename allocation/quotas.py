"""Quotas: the most GPUs that groups of jobs, a team or a member of it, may use at once."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from allocation.types import Ints


@dataclass(frozen=True, eq=False)
class Quotas:
    """Quotas of L groups.

    group (m, D) names the groups of each job, -1 for none; most_gpus (L,) is what a group may use at once, used_gpus
    (L,) what its jobs that are not rows use now.
    """

    group: Ints
    most_gpus: Ints
    used_gpus: Ints

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

    @property
    def left_gpus(self) -> Ints:
        """GPUs that each group (L,) may still use."""
        left: Ints = self.most_gpus - self.used_gpus
        return left
