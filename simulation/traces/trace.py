"""A trace: jobs with arrival times, independent of the file format."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum, auto
from types import MappingProxyType
from typing import NamedTuple, Self


class InvalidTrace(ValueError):
    """A line of a trace is invalid; names the line, the column (both from 1) and the reason."""

    def __init__(self, line: int, column: int, reason: str) -> None:
        self.line, self.column, self.reason = line, column, reason
        super().__init__(f"line {line}, column {column}: {reason}")


class LeftOut(StrEnum):
    """Why a job of a trace is not simulated, though its line is valid."""

    NO_GPU = "without_gpus"
    NEVER_SCHEDULED = "never_scheduled"
    NOT_ENDED = "not_ended"


class KnownRate(NamedTuple):
    """Rate of a whole job in steps/s on so many GPUs of a type."""

    gpu_type: str
    gpus: int
    steps_per_s: float


class Program(NamedTuple):
    """The program of a job: its workload (None: unknown), batch size, whether it may be tuned, rates and CPU curve."""

    workload: str | None = None
    batch: int | None = None
    tuned: bool = False
    rates: tuple[KnownRate, ...] = ()
    """As the trace tells them; empty: it tells none."""
    cpu_curve: tuple[tuple[int, float], ...] = ()
    """CPUs per GPU and throughput with them, in any unit; empty: CPUs gain it nothing."""


UNKNOWN = Program()


class GangSpread(Enum):
    """How a gang may be spread over the fewest possible nodes."""

    EQUAL = auto()
    """In equal parts."""
    FULL = auto()
    """Several nodes only if the gang uses all their GPUs."""
    UNEVEN = auto()
    """Nodes are filled one after the other; the last takes the rest."""


@dataclass(frozen=True, kw_only=True)
class TraceJob:
    """A job that arrives at arrival_s with total_steps, or with the steps that take duration_s on reference GPUs.

    gangs are the numbers of GPUs that it may run on, gpu_types the only types, None: any; gpus_per_replica the GPUs
    that one replica takes, of which a gang holds whole ones: a number for any type, or one for each of the only types,
    empty: one of any type; replicas are the numbers of them that it may run as, empty: all that its gangs hold;
    deadline_s is on the trace's clock; restart_s is the true cost of a restart, and told_restart_s the cost that
    policies assume, None: unknown; declared_length is the length that policies assume over the true one, inf: it
    declares none; team_weight is that of its team; array names the array of which it is a task, None: none;
    rounded_up: it requested a fraction of a GPU.
    """

    name: str
    arrival_s: float
    gangs: tuple[int, ...]
    gpu_types: frozenset[str] | None = None
    gpus_per_replica: int | Mapping[str, int] = field(default_factory=dict)
    replicas: tuple[int, ...] = ()
    program: Program = UNKNOWN
    spread: GangSpread = GangSpread.EQUAL
    restart_s: float | None = None
    told_restart_s: float | None = None
    total_steps: float | None = None
    duration_s: float | None = None
    weight: float = 1.0
    team: str | None = None
    array: str | None = None
    team_weight: float = 1.0
    declared_length: float = 1.0
    deadline_s: float | None = None
    rounded_up: bool = False


@dataclass(frozen=True)
class Trace:
    """Jobs by arrival, the number of invalid lines that were skipped, and of jobs that were left out by reason."""

    jobs: tuple[TraceJob, ...]
    skipped: int = 0
    left_out: Mapping[LeftOut, int] = field(default_factory=Counter)

    @property
    def rounded_up(self) -> int:
        """Number of jobs that requested a fraction of a GPU."""
        return sum(job.rounded_up for job in self.jobs)

    @classmethod
    def of(
        cls, jobs: Iterable[TraceJob], skipped: int = 0, left_out: Mapping[LeftOut, int] = MappingProxyType({})
    ) -> Self:
        """From jobs in any order; simultaneous arrivals keep the order of their lines."""
        return cls(tuple(sorted(jobs, key=lambda job: job.arrival_s)), skipped, Counter(left_out))

    def from_first_arrival(self) -> Self:
        """The same jobs, with arrivals and deadlines counted from the first arrival."""
        began_s = min((job.arrival_s for job in self.jobs), default=0.0)
        return replace(self, jobs=tuple(_earlier(job, began_s) for job in self.jobs))


def _earlier(job: TraceJob, by_s: float) -> TraceJob:
    deadline_s = None if job.deadline_s is None else job.deadline_s - by_s
    return replace(job, arrival_s=job.arrival_s - by_s, deadline_s=deadline_s)


def spelled_as(trace: Trace, gpu_types: Iterable[str]) -> Trace:
    """The same trace, whose names of GPU types are those of the cluster where they differ in case alone."""
    names = {gpu_type.casefold(): gpu_type for gpu_type in gpu_types}

    def spelled(job: TraceJob) -> TraceJob:
        if job.gpu_types is None or job.gpu_types.issubset(names.values()):
            return job
        return replace(job, gpu_types=frozenset(names.get(name.casefold(), name) for name in job.gpu_types))

    return replace(trace, jobs=tuple(map(spelled, trace.jobs)))
