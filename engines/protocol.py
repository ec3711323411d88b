"""What the scheduler and an engine say to each other.

The scheduler decides; an engine runs. Every command names its attempt, may be repeated without harm, and is
answered by later reports, never by a return value: the scheduler may die between the two.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Protocol


class StopReason(StrEnum):
    """Why an attempt is stopped; the job reads the word in `$MOTLEY_STOP_REASON_FILE`."""

    PREEMPT = "preempt"
    CANCEL = "cancel"
    TIMEOUT = "timeout"
    DRAIN = "drain"


class Stream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


class Phase(StrEnum):
    """Where an attempt stands at its engine."""

    LAUNCHING = "launching"
    RUNNING = "running"
    ENDED = "ended"
    LOST = "lost"
    """Nobody knows how it ended: its supervisor died."""
    UNKNOWN = "unknown"
    """The engine has never heard of it: the launch was not sent, or went missing. Sending it again is safe."""


@dataclass(frozen=True)
class Task:
    """The part of an attempt that runs on one node: one launch per node, as torchrun wants it."""

    node: str
    env: Mapping[str, str]


@dataclass(frozen=True)
class Launch:
    """Everything an engine needs to start one attempt.

    `env` holds what all nodes share; the engine adds the paths that only it knows: `MOTLEY_CHECKPOINT_DIR`,
    `MOTLEY_PROGRESS`, `MOTLEY_STOP_REASON_FILE`, and the working folder where `workdir` is None.
    """

    attempt: int
    job: str
    command: str | Sequence[str]
    """A string is run by `/bin/sh -c`, a list is executed as it is."""
    tasks: Sequence[Task]
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: Path | None = None
    log_limit_bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True)
class Progress:
    """A summary of the progress lines of one attempt so far (rank 0)."""

    reports: int
    first_step: int
    first_at: datetime
    step: int
    at: datetime
    loss: float | None = None
    epoch: float | None = None
    batch_size: int | None = None
    grad_sqr: float | None = None
    grad_var: float | None = None
    """The last line's squared norm of the gradient, and its variance over batches of `batch_size`."""

    @property
    def steps_per_second(self) -> float | None:
        """The measured rate, None until two reports lie apart in time."""
        seconds = (self.at - self.first_at).total_seconds()
        return (self.step - self.first_step) / seconds if seconds > 0 else None


@dataclass(frozen=True)
class AttemptReport:
    """What an engine knows of one attempt.

    `proven_gone` is the promise on which GPUs are handed on: no process of the attempt is left, grandchildren
    that left the session included. `exit_code` is the shell's (128 + n for signal n); None unless it ended.
    """

    attempt: int
    phase: Phase
    proven_gone: bool = False
    exit_code: int | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    progress: Progress | None = None
    invalid_lines: int = 0
    """Lines of the progress file that were no report, so far."""
    message: str = ""


@dataclass(frozen=True)
class GpuReport:
    index: int
    uuid: str = ""
    memory_mib: int = 0
    healthy: bool = True


@dataclass(frozen=True)
class NodeReport:
    """A node that the engine hears from now. Where it can see the hardware, also what is in it."""

    name: str
    gpu_type: str = ""
    gpus: Sequence[GpuReport] = ()
    cpus: int = 0
    memory_mib: int = 0


@dataclass(frozen=True)
class LogChunk:
    """Bytes of a log from `offset`; ask again from `next_offset`. `eof`: the attempt ended and nothing is left."""

    data: bytes
    offset: int
    next_offset: int
    size: int
    eof: bool


class EngineError(Exception):
    """An engine could not do as told; the message says what a person can do."""


class Engine(Protocol):
    """The five verbs of every engine."""

    def nodes(self) -> list[NodeReport]: ...

    def launch(self, launch: Launch) -> None:
        """Start the attempt, once: the same attempt number again is a no-op."""

    def stop(self, attempt: int, *, reason: StopReason, grace: timedelta) -> None:
        """Ask the attempt to end, and make sure of it after the grace. A shorter grace or a repeat is allowed."""

    def poll(self, attempts: Iterable[int]) -> list[AttemptReport]:
        """One report for each attempt asked for; one that was never launched here is UNKNOWN and proven gone."""

    def logs(self, attempt: int, stream: Stream, rank: int, offset: int, limit: int = 65536) -> LogChunk: ...
