"""Size of a replica: how many GPUs of each type one copy of a job's model takes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

Document = int | Mapping[str, int]
"""As a job's spec has it: one number for all GPU types, or a number for each type that it may use; empty: one GPU."""


@dataclass(frozen=True)
class GpusPerReplica:
    """GPUs that one replica takes: the same number on any type, or on each of these types, which are the only ones."""

    any_type: int = 1
    by_type: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, document: Document) -> Self:
        """Read a job's `gpus_per_replica`."""
        return cls(document) if isinstance(document, int) else cls(by_type=tuple(document.items()))

    @property
    def several(self) -> bool:
        """Whether the job is hybrid-parallel: a replica takes more than one GPU on some type."""
        return self.most > 1

    @property
    def least(self) -> int:
        """GPUs of a replica on the type where it takes fewest."""
        return min((gpus for _, gpus in self.by_type), default=self.any_type)

    @property
    def most(self) -> int:
        """GPUs of a replica on the type where it takes most."""
        return max((gpus for _, gpus in self.by_type), default=self.any_type)

    def on(self, gpu_type: str) -> int:
        """GPUs of that type; 0: a replica cannot be there."""
        return dict(self.by_type).get(gpu_type, 0) if self.by_type else self.any_type

    def gpus(self, least: int, most: int) -> tuple[int, int]:
        """Fewest and most GPUs, of any type, that so many replicas take."""
        return least * self.least, most * self.most

    def replicas(self, gpus_min: int, gpus_max: int) -> tuple[int, int]:
        """Fewest and most replicas of a job that takes so many GPUs: the inverse of `gpus`."""
        return gpus_min // self.least, gpus_max // self.most

    def words(self, replicas: int, gpu_type: str) -> str:
        """So many replicas on a type, in words: 2 replicas of 4 V100."""
        return f"{replicas} replica{'s' * (replicas != 1)} of {self.on(gpu_type)} {gpu_type.upper()}"


ONE_GPU = GpusPerReplica()
"""A replica is one GPU, whatever its type."""
