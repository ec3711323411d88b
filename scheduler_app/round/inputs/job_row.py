"""Row of a job, with what its owner declares: rates, and the sensitivity to CPUs and memory."""

from collections.abc import Mapping
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple, Self
from uuid import UUID

from allocation.cpu_memory.sensitivity import DataSet
from cluster_app.replica_size import GpusPerReplica
from cluster_app.storage import needs_of
from estimation.training_work import TrainingWork
from jobs_app.models.job import arrival_of, steps_in_all

DeclaredFor = tuple[tuple[str, ...], ...]
"""GPU types with declared rates, each followed by its GPU counts; thousands of jobs share one such tuple."""


class DeclaredRates(NamedTuple):
    """Rates declared by a job's owner: GPU types with GPU counts, and the steps/s in the same order."""

    gpus_by_type: DeclaredFor
    steps_per_s: tuple[float, ...]

    @classmethod
    def of(cls, rates: Mapping[str, Mapping[str, float]]) -> Self:
        """From steps/s by type and GPUs."""
        gpus_by_type = tuple((kind, *by) for kind, by in rates.items())
        return cls(gpus_by_type, tuple(chain.from_iterable(by.values() for by in rates.values())))


class DeclaredSensitivity(NamedTuple):
    """Sensitivity to CPUs and memory as declared by a job's owner; hashable."""

    curve: tuple[tuple[int, float], ...]
    """CPUs per GPU, and the throughput with these."""
    data: DataSet | None

    @classmethod
    def of(cls, declared: Mapping[str, Any]) -> Self | None:
        """From the job's column; None: nothing is declared."""
        if not declared:
            return None
        curve = tuple((int(cpus), float(value)) for cpus, value in declared["cpu_curve"].items())
        if "dataset_mib" not in declared:
            return cls(curve, None)
        size_gib = declared["dataset_mib"] / 1024
        return cls(curve, DataSet(size_gib, declared["bytes_per_sample"], declared["samples_per_second"]))


class JobRow(NamedTuple):
    id: UUID
    name: str
    state: str
    team_id: int
    owner_id: int
    array_id: UUID | None
    at_a_time: int | None
    array_tasks: int | None
    gpus_min: int
    gpus_max: int
    gpus_per_replica: GpusPerReplica
    mounts: list[str]
    image: str
    volunteers: tuple[str, ...]
    """What its nodes must be, as of `places_of`; empty where all nodes are."""
    gpu_types: list[str]
    gpu_memory_mib: int
    cpus_per_gpu: int
    memory_per_gpu_mib: int
    sensitivity: DeclaredSensitivity | None
    workload: str
    rates: DeclaredRates
    batch_size: dict[str, int]
    noise_scale: float | None
    """Of its gradient, in samples, as it reported it last; None: it has not."""
    noise_batch: int | None
    """Samples of a step at that time."""
    total_steps: int | None
    reported_total_steps: int | None
    step: int
    worth_done: float | None
    """As of the job."""
    grace_s: int
    restart_s: float
    """Of a restart: measured of its workload, else as declared."""
    preemptible: bool
    uneven_gang: bool
    weight: float
    begin_time: datetime | None
    deadline: datetime | None
    time_limit_s: int | None
    ran_s: float
    created_at: datetime
    attained_gpu_s: float
    work_lost_gpu_s: float
    attempt_count: int

    @property
    def arrived_at(self) -> datetime:
        """When it could first have started: its submission, or its begin time."""
        return arrival_of(self.created_at, self.begin_time)

    @property
    def steps_in_all(self) -> int | None:
        """As of the job."""
        return steps_in_all(self.total_steps, self.reported_total_steps, tuned=bool(self.batch_size))

    @property
    def work(self) -> TrainingWork:
        """What it has done and what is left, in steps in which rates count."""
        return TrainingWork.of(self)

    @property
    def needs(self) -> tuple[str, ...]:
        """Requirements on the job's nodes: named storage, containers, owner of the machine."""
        return needs_of(self.mounts, self.image, self.volunteers)
