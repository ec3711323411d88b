"""A trace: the jobs that come, as every format gives them."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, Self


class InvalidTrace(ValueError):
    """A line of a trace cannot be read; says which, in which column (both from 1), and why."""

    def __init__(self, line: int, column: int, reason: str) -> None:
        self.line, self.column, self.reason = line, column, reason
        super().__init__(f"line {line}, column {column}: {reason}")


class Program(NamedTuple):
    """What runs: a workload, None: of which nothing is known; samples of a step; whether these may be tuned."""

    workload: str | None = None
    batch: int | None = None
    tuned: bool = False


UNKNOWN = Program()


class Spread(Enum):
    """How a gang may be spread over nodes, which are as few as can be."""

    EQUAL = auto()
    """In equal parts."""
    FULL = auto()
    """Over several nodes only if it fills them."""
    UNEVEN = auto()
    """Node by node: the last one takes what is left."""


@dataclass(frozen=True, kw_only=True)
class TraceJob:
    """A job that comes at arrival_s and wants total_steps done, or as many as take duration_s on reference GPUs.

    gangs are the numbers of GPUs that it may run on, gpu_types the only types, None: any; deadline_s is on the trace's
    clock; restart_s is what a restart takes, and told_restart_s what policies take it for, None: nothing is known;
    rounded_up: it wants less than its gang, a part of a GPU.
    """

    name: str
    arrival_s: float
    gangs: tuple[int, ...]
    gpu_types: frozenset[str] | None = None
    program: Program = UNKNOWN
    spread: Spread = Spread.EQUAL
    restart_s: float | None = None
    told_restart_s: float | None = None
    total_steps: float | None = None
    duration_s: float | None = None
    weight: float = 1.0
    team: str | None = None
    deadline_s: float | None = None
    rounded_up: bool = False


@dataclass(frozen=True)
class Trace:
    """Jobs by arrival, and how many lines were skipped for their faults."""

    jobs: tuple[TraceJob, ...]
    skipped: int = 0

    @property
    def rounded_up(self) -> int:
        """How many jobs get a whole GPU where they want a part of one."""
        return sum(job.rounded_up for job in self.jobs)

    @classmethod
    def of(cls, jobs: Iterable[TraceJob], skipped: int = 0) -> Self:
        """Jobs in any order; those that come at once stay in the order of their lines."""
        return cls(tuple(sorted(jobs, key=lambda job: job.arrival_s)), skipped)
