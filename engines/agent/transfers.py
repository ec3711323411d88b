"""Transfers between an agent and its service: download of code and checkpoints, upload of logs and checkpoints."""

import logging
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic

from engines.agent.checkpoint_uploads import FAILED_PAUSE_S, TOO_LARGE_PAUSE_S, CheckpointUploads
from engines.agent.connection import UNAUTHORIZED, ArchiveTooLarge, Connection, Refused, Unheard
from engines.agent.jobs_of_others import jobs_of_others
from engines.agent.network import Network
from engines.attempt_files import AttemptFolder, write_json
from engines.gpu_readings import GpuReader
from engines.linux import seconds_since_boot
from engines.local.engine import LocalEngine
from engines.protocol import OUTPUT, EngineError, GpuReading, Launch, NodeReport, Stream, WatchedGpu
from engines.supervision.engine_root import THROUGH, make_folder
from engines.supervision.supervisor import write_exit

log = logging.getLogger(__name__)

PIECE_BYTES = 1 << 20
NOT_STARTED = 126
UNHEARD_PAUSE_S = IDLE_PAUSE_S = 5.0


class Transfers:
    """Transfers files in a separate thread, so that no large file delays the agent's messages.

    It starts attempts when their files have come, and notes those that are handed over in a file of their folder.
    """

    def __init__(
        self,
        folder: Path,
        connection: Connection,
        engine: LocalEngine,
        uploads: CheckpointUploads,
        *,
        may_start: Callable[[], bool],
        network: Callable[[], Network] | None = None,
    ) -> None:
        self._folder, self._connection, self._engine, self._may_start = folder, connection, engine, may_start
        self._uploads, self._others = uploads, jobs_of_others(folder)
        self._network = network
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._waiting: dict[int, Launch] = {}
        self._fetching_since_s: dict[int, float] = {}
        """By our monotonic clock, with the tries that failed."""
        self._sizes: dict[tuple[int, Stream], int] = {}
        self._full_until_s: dict[tuple[int, Stream], float] = {}
        """Logs of which the service takes no more, and when to ask again: its limit may have been raised."""
        self._not_taken: set[int] = set()
        """Attempts of which the service takes no files: it has declared them lost."""
        self._not_before_s: dict[int, float] = {}
        """When to send again what failed, or was larger than is taken, by our monotonic clock."""

    def add(self, launch: Launch) -> None:
        """Fetch what the launch needs, and start it."""
        with self._lock:
            self._waiting.setdefault(launch.attempt, launch)
        self._woken.set()

    @property
    def fetching(self) -> list[int]:
        with self._lock:
            return list(self._waiting)

    def run(self, stopped: threading.Event, pause_s: float) -> None:
        """Work until stopped; failed transfers are repeated. Without an attempt it waits for a launch."""
        while not stopped.is_set():
            has_work = True
            try:
                has_work = self.turn()
            except Exception:  # the list of attempts could not be read
                log.exception("files wait")
            if has_work:
                stopped.wait(pause_s)
            else:
                self._woken.wait(IDLE_PAUSE_S)
            self._woken.clear()

    def turn(self) -> bool:
        """Start waiting launches, then send new data of every attempt; one that fails delays no other.

        Returns whether there are any.
        """
        waiting = list(self._waiting.values())
        for launch in waiting:
            self._alone(launch.attempt, lambda launch=launch: self._start(launch))  # type: ignore[misc]
        attempts = self._engine.attempts()
        for attempt in attempts:
            self._alone(attempt, lambda attempt=attempt: self._send(attempt))  # type: ignore[misc]
        return bool(waiting or attempts)

    def _alone(self, attempt: int, act: Callable[[], None]) -> None:
        try:
            act()
        except ArchiveTooLarge as error:
            self._not_before_s[attempt] = monotonic() + TOO_LARGE_PAUSE_S
            log.error("the checkpoints of attempt %s are kept here: %s", attempt, error)
        except Unheard as error:
            self._not_before_s[attempt] = monotonic() + UNHEARD_PAUSE_S  # an archive is packed for each try
            log.warning("files of attempt %s wait: %s", attempt, error)
        except Exception:
            self._not_before_s[attempt] = monotonic() + FAILED_PAUSE_S
            log.exception("files of attempt %s could not be moved", attempt)

    def is_handed_over(self, attempt: int) -> bool:
        return self._handed_over(attempt).exists()

    def forget(self, attempt: int, *, keep_job: bool = False) -> None:
        """Remove the files of an attempt; its job's too, unless they are kept, another attempt of it is here, or it is
        another service's."""
        job = self._job_of(attempt)
        if job and not keep_job and job not in self.jobs_here(but=attempt) | self._others:
            self._engine.discard({job: [attempt]})
        else:
            shutil.rmtree(self._attempt(attempt).path, ignore_errors=True)

    def jobs_here(self, *, but: int = 0) -> set[str]:
        """Jobs with an attempt that is here, except this one, or is to come."""
        with self._lock:
            waiting = {one.job for one in self._waiting.values()}
        return waiting | {self._job_of(one) for one in self._engine.attempts() if one != but}

    def _job_of(self, attempt: int) -> str:
        launch = self._attempt(attempt).read_launch()
        return launch["ranks"][0]["env"].get("MOTLEY_JOB_ID", "") if launch is not None else ""

    def _start(self, launch: Launch) -> None:
        try:
            with_files = self._fetched(launch)
            if not self._may_start():
                raise EngineError("The lease was over before its files had come.")
            self._engine.launch(self._network().with_interface(with_files) if self._network else with_files)
        except Unheard:
            raise
        except Exception as error:  # the job goes elsewhere
            self._note_failure(launch, str(error))
        self._fetching_since_s.pop(launch.attempt, None)
        with self._lock:
            self._waiting.pop(launch.attempt, None)

    def _fetched(self, launch: Launch) -> Launch:
        """The launch with its files on this machine."""
        files: dict[str, Path] = {}
        since_s = self._fetching_since_s.setdefault(launch.attempt, monotonic())
        for what, remote in (("code", launch.code), ("checkpoints", launch.checkpoints)):
            if remote is not None:
                files[what] = self._folder / "incoming" / f"{launch.attempt}.{what}.tar.gz"
                files[what].parent.mkdir(mode=0o700, exist_ok=True)
                self._connection.fetch(launch.attempt, what, files[what])
        fetched_s = monotonic() - since_s if files else None
        return replace(launch, **files, fetched_s=fetched_s)  # type: ignore[arg-type]  # the names of two fields

    def _note_failure(self, launch: Launch, message: str) -> None:
        """Report a start that failed: the job goes elsewhere."""
        log.error("attempt %s could not be started: %s", launch.attempt, message)
        folder = self._attempt(launch.attempt)
        make_folder(folder.path, THROUGH)
        write_exit(folder, exit_code=NOT_STARTED, started_at=None, message=message, node_failed=True)

    def _send(self, attempt: int) -> None:
        if self.is_handed_over(attempt) or monotonic() < self._not_before_s.get(attempt, 0.0):
            return
        report = next(iter(self._engine.poll([attempt])))
        over = report.phase.is_over and report.proven_gone
        if attempt not in self._not_taken:
            self._send_files(attempt, checkpoints=over and report.started_at is not None)
        if over:
            write_json(self._handed_over(attempt), {})
            self._clear(attempt)

    def _send_files(self, attempt: int, *, checkpoints: bool) -> None:
        try:
            self._send_logs(attempt)
            if checkpoints:
                self._uploads.send_last(attempt)
        except Refused as error:
            if error.status == UNAUTHORIZED:
                raise
            log.warning("the service takes no files of attempt %s: %s", attempt, error)
            self._not_taken.add(attempt)

    def _send_logs(self, attempt: int) -> None:
        """Send the order records before the bytes, and no byte that is newer: the service has none without its time."""
        sizes = {stream: self._engine.logs(attempt, stream, 0, 0, 1).size for stream in OUTPUT}
        for stream in (Stream.ORDER, *OUTPUT):
            if monotonic() >= self._full_until_s.get((attempt, stream), 0.0):
                self._send_log(attempt, stream, sizes.get(stream))

    def _send_log(self, attempt: int, stream: Stream, until: int | None) -> None:
        """Send new bytes of the log, from the offset that the service returns."""
        key = attempt, stream
        while data := self._new(attempt, stream, before := self._sizes.get(key, 0), until):
            self._sizes[key] = self._connection.append_log(attempt, stream, 0, before, data)
            if self._sizes[key] == before:
                self._full_until_s[key] = monotonic() + TOO_LARGE_PAUSE_S
                break

    def _new(self, attempt: int, stream: Stream, offset: int, until: int | None) -> bytes:
        limit = PIECE_BYTES if until is None else min(PIECE_BYTES, until - offset)
        return self._engine.logs(attempt, stream, 0, offset, limit).data if limit > 0 else b""

    def _clear(self, attempt: int) -> None:
        for path in (self._folder / "incoming").glob(f"{attempt}.*"):
            path.unlink(missing_ok=True)

    def _attempt(self, attempt: int) -> AttemptFolder:
        return AttemptFolder(self._folder / "engine" / "attempts" / str(attempt))

    def _handed_over(self, attempt: int) -> Path:
        return self._attempt(attempt).path / "handed_over.json"


EVERY_S = 5.0


class GpuSamples:
    """Readings when they are due, numbered as the machine numbers its GPUs; none of emulated ones.

    Whose processes are on a GPU is the owner's business, and is left out.
    """

    def __init__(self, clock: Callable[[], float] = seconds_since_boot) -> None:
        self._clock, self._reader = clock, GpuReader()
        self._due_s = 0.0

    def __call__(self, node: NodeReport) -> Sequence[GpuReading]:
        now_s = self._clock()
        if now_s < self._due_s:
            return ()
        self._due_s = now_s + EVERY_S
        gpus = [WatchedGpu(one.index, node.name, one.index, one.uuid) for one in node.gpus]
        return [replace(one, processes=None) for one in self._reader.read(gpus)]
