"""An engine without processes: it says what a fleet of machines would, at once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from engines.gpu_readings import emulated_readings
from engines.protocol import (
    AttemptReport,
    CheckpointTimes,
    EngineError,
    GpuReading,
    JobFile,
    Launch,
    LogChunk,
    NodeReport,
    NodeShare,
    NoSuchFile,
    OpenedFile,
    Phase,
    PowerCommand,
    Progress,
    SessionCommand,
    StopReason,
    Stream,
    WatchedGpu,
)

ASKED_TO_STOP = 75
"""The exit code of a job that has written its checkpoint."""


@dataclass
class InstantEngine:
    """Launches take no time, a stop is obeyed at once, and progress comes when the benchmark says so."""

    names: list[str]
    now: datetime
    running: dict[int, datetime] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)
    progress: dict[int, Progress] = field(default_factory=dict)

    def nodes(self) -> list[NodeReport]:
        return [NodeReport(name) for name in self.names]

    def sync_drains(self, wanted: Mapping[str, str]) -> dict[str, str]:
        return {}

    def power_command(self, node: str, *, wake: bool) -> PowerCommand | None:
        return None

    def launch(self, launch: Launch) -> None:
        self.running.setdefault(launch.attempt, self.now)

    def stop(self, attempt: int, *, reason: StopReason, grace: timedelta) -> None:
        self.ended.setdefault(attempt, ASKED_TO_STOP)

    def set_share(self, attempt: int, shares: Sequence[NodeShare]) -> None:
        pass

    def set_checkpoint_times(self, attempt: int, times: CheckpointTimes) -> None:
        pass

    def poll(self, attempts: Iterable[int]) -> list[AttemptReport]:
        return [self._report(attempt) for attempt in attempts]

    def read_gpus(self, gpus: Sequence[WatchedGpu]) -> list[GpuReading]:
        return emulated_readings(gpus, self.now.timestamp())

    def attempts(self) -> dict[int, bool]:
        return {attempt: attempt in self.ended for attempt in self.running}

    def sizes(self, jobs: Mapping[str, Sequence[int]]) -> dict[str, int]:
        return dict.fromkeys(jobs, 0)

    def discard(self, jobs: Mapping[str, Sequence[int]]) -> None:
        for known in (self.running, self.ended, self.progress):
            for attempts in jobs.values():
                for attempt in attempts:
                    known.pop(attempt, None)

    def logs(self, attempt: int, stream: Stream, rank: int, offset: int, limit: int = 65536) -> LogChunk:
        return LogChunk(b"", offset, offset, 0, eof=True)

    def list_files(self, job: str, path: str) -> list[JobFile]:
        raise NoSuchFile

    def open_file(self, job: str, path: str) -> OpenedFile:
        raise NoSuchFile

    def session(self, attempt: int, rank: int) -> SessionCommand:
        raise EngineError("The engine of benchmarks runs no process.")

    def report_progress(self, attempts: Iterable[int], *, now: datetime, steps: int) -> None:
        """Each of these has made so many steps since it last said something."""
        for attempt in attempts:
            known = self.progress.get(attempt)
            begun = self.running[attempt]
            self.progress[attempt] = Progress(
                reports=known.reports + 1 if known else 1,
                first_step=0,
                first_at=begun,
                step=(known.step if known else 0) + steps,
                at=now,
            )

    def _report(self, attempt: int) -> AttemptReport:
        if attempt not in self.running:
            return AttemptReport(attempt, Phase.UNKNOWN, proven_gone=True)
        begun, progress = self.running[attempt], self.progress.get(attempt)
        if attempt in self.ended:
            code = self.ended[attempt]
            return AttemptReport(attempt, Phase.ENDED, True, code, begun, self.now, progress=progress)
        return AttemptReport(attempt, Phase.RUNNING, started_at=begun, progress=progress)
