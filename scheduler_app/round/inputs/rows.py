"""All rows that a round is decided from."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import NamedTuple
from uuid import UUID

from accounting_app.durations.array_samples import ArraySample
from accounting_app.durations.duration_history import EndedJob
from accounting_app.fairness.budgets import TeamBudget
from estimation.boosted_durations import BoostedDurations
from estimation.stages import StageRatio
from scheduler_app.round.inputs.cpu_curves import CpuCurves
from scheduler_app.round.inputs.job_row import JobRow
from scheduler_app.round.inputs.measured import MeasuredRow
from scheduler_app.round.known_workloads import KnownRate
from scheduler_app.windows.reading import WindowRow


class TypeRow(NamedTuple):
    id: int
    name: str
    memory_mib: int
    tflops: float | None
    bandwidth_gbs: float | None
    price_per_hour: float


class NodeRow(NamedTuple):
    id: int
    name: str
    gpu_type_id: int
    cpus: int
    memory_mib: int
    foreign_gpus: int
    """GPUs that jobs outside Motley use."""
    foreign_cpus: int
    foreign_memory_mib: int
    engine_id: str
    """Its name."""
    storage_mib_s: int | None
    """Bandwidth of its storage; None: unknown."""
    emulated: bool
    price_per_gpu_hour: Decimal | None
    """None: that of its GPU type."""
    in_service: bool
    storage: frozenset[str] = frozenset()
    """Names of the storage that it has, none that was found missing lately; and what it offers else."""
    missing: frozenset[str] = frozenset()
    tunes: bool = True
    """Whether shares of CPUs and memory can be changed there while a job runs: Slurm books them once for all."""
    least_cpus_per_gpu: int = 0
    """That its engine books for a GPU at least; 0: it books nothing."""
    least_memory_per_gpu_mib: int = 0
    cpus_per_core: int = 1
    """Where CPUs are booked, these are booked together."""


class GpuRow(NamedTuple):
    id: int
    node_id: int
    healthy: bool
    slower_by: float = 0.0
    """Than its type, a part of 1."""


class AttemptRow(NamedTuple):
    id: int
    job_id: UUID
    state: str
    gpu_type_id: int
    gpu_count: int
    nodes: list[str]
    started_at: datetime | None
    cpus_per_gpu: int
    memory_per_gpu_mib: int
    cpu_memory: str
    told_cpus_per_gpu: int
    told_memory_per_gpu_mib: int
    peak_memory_mib: int
    measures: bool
    """Whether it was placed where it is to measure its rate there."""


class Ran(NamedTuple):
    """When a job first ran, and when it last did: until now, if it runs."""

    first_at: datetime
    last_at: datetime


RunInterval = tuple[UUID, int, datetime, datetime | None]
"""Job, GPU type, start and end of an attempt that ran; no end: it still runs."""


class TeamRow(NamedTuple):
    id: int
    name: str
    weight: float
    max_gpus: int | None
    max_gpus_per_member: int | None


class TypeQuotaRow(NamedTuple):
    team_id: int
    gpu_type_id: int
    gpus: int
    borrowing_limit: int | None
    lending_limit: int | None


class UnreadableJob(NamedTuple):
    """A job whose columns cannot be read, and why."""

    row: JobRow
    """What can be read; the other columns are empty."""
    error: Exception


@dataclass(frozen=True)
class InputRows:
    """All rows that a round is decided from."""

    types: list[TypeRow]
    nodes: list[NodeRow]
    gpus: list[GpuRow]
    holders: Mapping[int, int]
    """GPU → the attempt that holds it."""
    waiting_claims: Mapping[int, int]
    """GPU → the attempt whose claim waits until the GPU is vacated."""
    attempts: Mapping[int, AttemptRow]
    jobs: list[JobRow]
    """Schedulable queued jobs and jobs with an attempt, in the order of submission."""
    waiting_for: Mapping[UUID, list[str]]
    """Queued jobs with unmet dependencies → the jobs that they wait for."""
    begin_times: Mapping[UUID, datetime]
    """Queued jobs, not held, that wait for their begin time → when it comes."""
    teams: Mapping[int, TeamRow]
    backlog_s: Mapping[int, float]
    """Team → seconds of the whole cluster that it is behind its share."""
    measured: list[MeasuredRow]
    noise: Mapping[tuple[int, str], tuple[float, float]]
    """Team and workload → the gradient's squared norm, and the variance of one sample's."""
    received: list[RunInterval]
    ran: Mapping[UUID, Ran]
    """Unfinished jobs that have run → when."""
    busy_in_arrays: Mapping[UUID, int]
    """Array → number of its members that hold GPUs or have a waiting claim."""

    unfinished_in_arrays: Mapping[UUID, int] = field(default_factory=dict)
    """Array → number of its unfinished members; none where no job of the round is of an array."""
    array_samples: Mapping[UUID, ArraySample] = field(default_factory=dict)
    """Array of jobs that declare no length → what its members have told that ended."""

    type_quotas: Sequence[TypeQuotaRow] = ()
    """Quotas of teams on GPU types."""
    known_rates: Sequence[KnownRate] = ()
    """Measured rates of all workloads, whether they have a job in the round or not."""
    loss_rates: Mapping[str, float] = field(default_factory=dict)
    """Expected losses per second of each node; empty where all nodes are stable."""
    ended: Sequence[EndedJob] = ()
    """Jobs that succeeded last, the newest first; none where every job tells its length."""
    duration_model: BoostedDurations | None = None
    """By which durations are estimated where it was better than those jobs alone."""
    stages: Mapping[UUID, StageRatio] = field(default_factory=dict)
    """Jobs that start after others → what these took beside what was expected of them."""
    forecasts: Collection[UUID] = ()
    """Jobs with an open forecast."""
    budgets: Mapping[int, TeamBudget] = field(default_factory=dict)
    """Team → its budget; the weights of teams are those that soft ones leave."""
    over_budget: Mapping[UUID, TeamBudget] = field(default_factory=dict)
    """Queued jobs that could start but for the budget of their team, which is used up."""
    windows: Sequence[WindowRow] = ()
    """The next occurrence of each window of nodes."""
    checkpoint_s: Mapping[UUID, float] = field(default_factory=dict)
    """Job → seconds that its last checkpoint took; none where there are no windows."""
    cpu_curves: CpuCurves | None = None
    """Measured gain of CPUs by gang; None: CPUs and memory are not tuned."""
    unreadable: Mapping[UUID, UnreadableJob] = field(default_factory=dict)
    """Jobs whose columns cannot be read."""
    left_out: Mapping[UUID, JobRow] = field(default_factory=dict)
    """Jobs that are not decided on; their attempts keep what they have."""

    def without(self, jobs: Collection[UUID]) -> "InputRows":
        """Without these jobs; their attempts keep their GPUs, CPUs and memory, and count towards quotas."""
        left_out = {job.id: job for job in self.jobs if job.id in jobs}
        return replace(
            self, jobs=[job for job in self.jobs if job.id not in jobs], left_out={**self.left_out, **left_out}
        )

    @cached_property
    def jobs_of_attempts(self) -> dict[UUID, JobRow]:
        """The jobs of all attempts, those that are not decided on among them."""
        unreadable = {key: job.row for key, job in self.unreadable.items()}
        return {**unreadable, **self.left_out, **{job.id: job for job in self.jobs}}

    @property
    def measured_on_types(self) -> list[MeasuredRow]:
        """Measured rates on the GPU types that were read: the rows are no snapshot, and one may have come since."""
        known = {row.id for row in self.types}
        return [row for row in self.measured if row.gpu_type_id in known]

    @property
    def missing_storage(self) -> dict[str, list[str]]:
        """Storage → the nodes on which it was found missing lately."""
        names = sorted({name for node in self.nodes for name in node.missing})
        return {name: [node.name for node in self.nodes if name in node.missing] for name in names}
