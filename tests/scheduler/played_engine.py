"""An engine that a test plays: what its processes do is decided by the test, and what is alive is known."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from engines.gpu_readings import emulated_readings
from engines.protocol import (
    AttemptReport,
    CheckpointTimes,
    EngineUnreachable,
    GpuReading,
    JobFile,
    Launch,
    LogChunk,
    NodeReport,
    NodeShare,
    NoSuchFile,
    OpenedFile,
    Phase,
    SessionCommand,
    StopReason,
    Stream,
    WatchedGpu,
)

STOPPED_BEFORE_START = 143


@dataclass
class Played:
    """An attempt that was launched; before its start, and until its end, its processes may be there."""

    job: str
    gpus: frozenset[str]
    """As node/device."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    lost: bool = False
    """Its supervisor is gone: nobody reads how it ends."""

    @property
    def alive(self) -> bool:
        return self.ended_at is None

    @property
    def nodes(self) -> set[str]:
        return {gpu.split("/")[0] for gpu in self.gpus}


@dataclass
class PlayedEngine:
    """Keeps the promises of `engines.protocol`: a launch starts an attempt once, a stop may come before it."""

    names: Sequence[str]
    now: datetime
    attempts_of_it: dict[int, Played] = field(default_factory=dict)
    stopped: set[int] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    answers: bool = True

    def alive(self) -> dict[int, Played]:
        return {number: one for number, one in self.attempts_of_it.items() if one.alive}

    def nodes(self) -> list[NodeReport]:
        self._refuse()
        return [NodeReport(name) for name in self.names if name not in self.silent]

    def sync_drains(self, wanted: Mapping[str, str]) -> dict[str, str]:
        return {}

    def launch(self, launch: Launch) -> None:
        self._refuse()
        if launch.attempt not in self.attempts_of_it:
            played = Played(launch.job, frozenset(_gpus_of(launch)))
            if launch.attempt in self.stopped:
                played.ended_at, played.exit_code = self.now, STOPPED_BEFORE_START
            self.attempts_of_it[launch.attempt] = played

    def stop(self, attempt: int, *, reason: StopReason, grace: timedelta) -> None:
        self._refuse()
        self.stopped.add(attempt)
        played = self.attempts_of_it.get(attempt)
        if played is not None and played.lost and not played.nodes & self.silent:
            self._end(played, None)

    def set_share(self, attempt: int, shares: Sequence[NodeShare]) -> None:
        pass

    def set_checkpoint_times(self, attempt: int, times: CheckpointTimes) -> None:
        pass

    def poll(self, attempts: Iterable[int]) -> list[AttemptReport]:
        self._refuse()
        return [report for number in attempts if (report := self._report(number)) is not None]

    def read_gpus(self, gpus: Sequence[WatchedGpu]) -> list[GpuReading]:
        return emulated_readings(gpus, self.now.timestamp())

    def start(self, number: int) -> None:
        self.attempts_of_it[number].started_at = self.now

    def exit(self, number: int, code: int) -> None:
        self._end(self.attempts_of_it[number], code)

    def lose(self, number: int) -> None:
        self.attempts_of_it[number].lost = True

    def _end(self, played: Played, code: int | None) -> None:
        played.ended_at, played.exit_code = self.now, code

    def _report(self, number: int) -> AttemptReport | None:
        played = self.attempts_of_it.get(number)
        if played is None:
            return AttemptReport(number, Phase.UNKNOWN, proven_gone=True)
        if played.nodes & self.silent:
            return None
        if played.lost:
            return AttemptReport(number, Phase.LOST, proven_gone=not played.alive, started_at=played.started_at)
        if played.alive:
            phase = Phase.RUNNING if played.started_at else Phase.LAUNCHING
            return AttemptReport(number, phase, started_at=played.started_at)
        return AttemptReport(
            number,
            Phase.ENDED,
            proven_gone=True,
            exit_code=played.exit_code,
            started_at=played.started_at,
            ended_at=played.ended_at,
        )

    def _refuse(self) -> None:
        if not self.answers:
            raise EngineUnreachable("the test lets it not answer")

    def logs(self, attempt: int, stream: Stream, rank: int, offset: int, limit: int = 65536) -> LogChunk:
        raise NotImplementedError

    def list_files(self, job: str, path: str) -> list[JobFile]:
        raise NoSuchFile

    def open_file(self, job: str, path: str) -> OpenedFile:
        raise NoSuchFile

    def session(self, attempt: int, rank: int) -> SessionCommand:
        raise NotImplementedError

    def attempts(self) -> dict[int, bool]:
        return {number: not one.alive for number, one in self.attempts_of_it.items()}

    def discard(self, jobs: Mapping[str, Sequence[int]]) -> None:
        """Nothing is on a disk."""


def _gpus_of(launch: Launch) -> Iterator[str]:
    for task in launch.tasks:
        for device in task.env["CUDA_VISIBLE_DEVICES"].split(","):
            yield f"{task.node}/{device}"
