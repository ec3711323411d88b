"""Protocol between the scheduler and an engine.

Commands are idempotent and name their attempt. Their effect shows in later reports, never in a return value, because
the scheduler may die in between.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Protocol


class StopReason(StrEnum):
    """Why an attempt is stopped; the job can read it in `$MOTLEY_STOP_REASON_FILE`."""

    PREEMPT = "preempt"
    CANCEL = "cancel"
    TIMEOUT = "timeout"
    DRAIN = "drain"


class Stream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


class Phase(StrEnum):
    """Phase of an attempt at its engine."""

    LAUNCHING = "launching"
    RUNNING = "running"
    ENDED = "ended"
    LOST = "lost"
    """Its supervisor died, so how it ended is unknown."""
    UNKNOWN = "unknown"
    """The engine does not know it: the launch was not sent, or was lost. Sending it again is safe."""


@dataclass(frozen=True)
class NodeLaunch:
    """Launch on one node: one process per node, as torchrun expects."""

    node: str
    env: Mapping[str, str]


@dataclass(frozen=True)
class Launch:
    """Input for starting one attempt.

    `env` is common to all nodes; the engine adds the paths that it chooses: `MOTLEY_CHECKPOINT_DIR`,
    `MOTLEY_PROGRESS`, `MOTLEY_STOP_REASON_FILE`, and the working folder where `workdir` is None.
    """

    attempt: int
    job: str
    command: str | Sequence[str]
    """A string is run by `/bin/sh -c`, a list is executed directly."""
    tasks: Sequence[NodeLaunch]
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: Path | None = None
    log_limit_bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True)
class Progress:
    """Summary of the progress lines of one attempt so far (rank 0)."""

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
    """Variance of the gradient over batches of `batch_size`; `grad_sqr` is its squared norm. Both of the last line."""

    @property
    def steps_per_second(self) -> float | None:
        """Measured throughput; None until two reports differ in time."""
        seconds = (self.at - self.first_at).total_seconds()
        return (self.step - self.first_step) / seconds if seconds > 0 else None


@dataclass(frozen=True)
class AttemptReport:
    """Report on one attempt.

    `proven_gone` is the proof on which its GPUs are given to others: no process of the attempt is left, including
    descendants that left the session. `exit_code` is the shell's (128 + n for signal n); None unless it ended.
    """

    attempt: int
    phase: Phase
    proven_gone: bool = False
    exit_code: int | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    progress: Progress | None = None
    invalid_lines: int = 0
    """Lines of the progress file so far that are not valid reports."""
    message: str = ""


@dataclass(frozen=True)
class GpuReport:
    index: int
    uuid: str = ""
    memory_mib: int = 0
    healthy: bool = True


@dataclass(frozen=True)
class NodeReport:
    """Heartbeat of a node; where the engine can query the hardware, also its resources."""

    name: str
    gpu_type: str = ""
    gpus: Sequence[GpuReport] = ()
    cpus: int = 0
    memory_mib: int = 0


@dataclass(frozen=True)
class LogChunk:
    """Bytes of a log from `offset`; continue at `next_offset`. `eof`: the attempt has ended, and so does its log."""

    data: bytes
    offset: int
    next_offset: int
    size: int
    eof: bool


class EngineError(Exception):
    """A command to an engine failed; the message says what an administrator can do."""


class Engine(Protocol):
    """The five commands of every engine."""

    def nodes(self) -> list[NodeReport]: ...

    def launch(self, launch: Launch) -> None:
        """Start the attempt; idempotent by attempt number."""

    def stop(self, attempt: int, *, reason: StopReason, grace: timedelta) -> None:
        """Send SIGTERM, and SIGKILL after the grace period. Idempotent; a repeat may shorten the grace period."""

    def poll(self, attempts: Iterable[int]) -> list[AttemptReport]:
        """One report per attempt; an attempt that was never launched here is UNKNOWN and proven gone."""

    def logs(self, attempt: int, stream: Stream, rank: int, offset: int, limit: int = 65536) -> LogChunk: ...
