"""Uploads of checkpoints: of running jobs at intervals, and of ended ones a last time.

The service has one archive per job, the latest. A machine sends one at a time, and the last one of an attempt after all
others: an older one never takes its place.
"""

import logging
import shutil
import threading
from collections.abc import Collection
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

from engines.agent.checkpoint_snapshot import (
    NotLinked,
    NotPacked,
    Stamps,
    drop_changed,
    pack,
    remove_snapshot,
    stamps_of,
    take_snapshot,
)
from engines.agent.connection import ArchiveTooLarge, Connection, Refused, Unheard
from engines.agent.sent_files import SentFiles, may_replace
from engines.attempt_files import AttemptFolder
from engines.local.engine import LocalEngine
from engines.protocol import Phase

log = logging.getLogger(__name__)

IDLE_PAUSE_S = 5.0
FAILED_PAUSE_S, TOO_LARGE_PAUSE_S = 15.0, 600.0
"""The first is doubled with each failure in a row, up to the second."""


class UploadRate(NamedTuple):
    """How often the checkpoints of a running job are sent."""

    pause_s: float = 60.0
    """The least time between two archives of a job."""
    busy_part: float = 0.1
    """Most of the time that uploads may take: archives are packed, and sent whole."""
    settling_s: float = 2.0
    """A file that is written in place changes within this time."""


USUAL = UploadRate()


class CheckpointUploads:
    """Sends archives of checkpoints; those of running jobs in a separate thread, in parallel to their logs."""

    def __init__(self, folder: Path, connection: Connection, engine: LocalEngine, pace: UploadRate = USUAL) -> None:
        self._folder, self._connection, self._engine = folder / "outgoing", connection, engine
        self._attempts = folder / "engine" / "attempts"
        self._pace = pace
        self._one_at_a_time = threading.Lock()
        self._sent = SentFiles(self._attempts)
        self._due_at_s: dict[int, float] = {}
        """When each running attempt's checkpoints are sent next, by our monotonic clock."""
        self._rest_until_s = 0.0
        """For all attempts together: uploads take a part of the machine's time."""
        self._failures: dict[int, int] = {}
        """In a row."""
        self._last_waits: set[int] = set()
        """Ended attempts whose last archive goes before those of running jobs."""

    def run(self, stopped: threading.Event, pause_s: float) -> None:
        """Send the checkpoints of running jobs until stopped; without an attempt the pause is longer."""
        while not stopped.wait(pause_s if self._due_at_s else IDLE_PAUSE_S):
            try:
                self.turn()
            except Exception:  # the list of attempts could not be read
                log.exception("checkpoints wait")

    def clear_away(self) -> None:
        """Remove unfinished archives of an agent that was killed."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def turn(self) -> None:
        """Send new checkpoints of running jobs that are due."""
        attempts = self._engine.attempts()
        self._forget_others(attempts)
        for attempt in sorted(filter(self._is_due, attempts), key=self._due_at_s.__getitem__):
            if self._may_go_on() and monotonic() >= self._rest_until_s:
                self._try(attempt)

    def send_last(self, attempt: int) -> None:
        """Send the checkpoints of an attempt that has ended, if it has any that the service does not have.

        Raises `Unheard` while another archive is on its way.
        """
        checkpoints = self._checkpoints_of(attempt)
        if checkpoints is None or self._has_nothing_to_send(attempt, checkpoints):
            return
        self._last_waits.add(attempt)
        if not self._one_at_a_time.acquire(blocking=False):
            raise Unheard("checkpoints of a running job are being sent")
        try:
            self._last_waits.discard(attempt)
            if stamps_of(checkpoints, but=()) != self._sent.stamps(attempt):
                self._send_whole(attempt, checkpoints)
        finally:
            self._one_at_a_time.release()

    def _has_nothing_to_send(self, attempt: int, checkpoints: Path) -> bool:
        """Whether no checkpoint exists here or at the service; a job that removed all sends an empty archive."""
        is_empty = not checkpoints.is_dir() or not any(checkpoints.iterdir())
        return is_empty and self._sent.names(attempt) == frozenset()

    def _send_whole(self, attempt: int, checkpoints: Path) -> None:
        """Send the folder; an empty one in the place of one that the job has removed."""
        empty = self._folder / f"{attempt}.empty"
        try:
            if not checkpoints.is_dir():
                empty.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._pack_and_send(attempt, checkpoints if checkpoints.is_dir() else empty)
        finally:
            remove_snapshot(empty)

    def _is_due(self, attempt: int) -> bool:
        """Whether the next upload is due; not for a job that has just started and saved nothing new."""
        due_at_s = self._due_at_s.setdefault(attempt, monotonic() + self._pace.pause_s)
        return monotonic() >= due_at_s

    def _may_go_on(self) -> bool:
        return not self._last_waits

    def _try(self, attempt: int) -> None:
        """Send the checkpoints, and record when the next upload may start."""
        with self._one_at_a_time:
            began_s = monotonic()
            least_s = self._tried(attempt)
        now_s = monotonic()
        self._rest_until_s = now_s + (now_s - began_s) / self._pace.busy_part
        self._due_at_s[attempt] = max(now_s + least_s, self._rest_until_s)

    def _tried(self, attempt: int) -> float:
        """Send the checkpoints; returns the least seconds until the next try."""
        try:
            is_sent = self._send_running(attempt)
        except ArchiveTooLarge as error:
            log.error("the checkpoints of attempt %s are kept here: %s", attempt, error)
            return TOO_LARGE_PAUSE_S
        except NotLinked as error:
            return self._after_no_link(attempt, error)
        except (Unheard, Refused, NotPacked) as error:
            log.warning("the checkpoints of attempt %s wait: %s", attempt, error)
            return self._after_failure(attempt)
        except Exception:
            log.exception("the checkpoints of attempt %s could not be sent", attempt)
            return self._after_failure(attempt)
        self._failures.pop(attempt, None)
        return self._pace.pause_s if is_sent else 0.0

    def _after_no_link(self, attempt: int, error: NotLinked) -> float:
        """Said once: neither the disk nor a setting of the kernel changes while a job runs."""
        if attempt not in self._failures:
            log.error("the checkpoints of attempt %s are sent when it ends: %s", attempt, error)
        self._after_failure(attempt)
        return TOO_LARGE_PAUSE_S

    def _after_failure(self, attempt: int) -> float:
        times = self._failures[attempt] = self._failures.get(attempt, 0) + 1
        return min(FAILED_PAUSE_S * (1 << min(times - 1, 10)), TOO_LARGE_PAUSE_S)

    def _send_running(self, attempt: int) -> bool:
        """Send the finished files, if they differ from those of the service; False if they do not, or are changing."""
        checkpoints = self._checkpoints_of(attempt)
        if checkpoints is None or not self._is_running(attempt):
            return False
        if stamps_of(checkpoints) in (self._sent.stamps(attempt), {}):
            return False
        snapshot = self._folder / f"{attempt}.snapshot"
        try:
            return self._send_settled(attempt, take_snapshot(checkpoints, snapshot), snapshot)
        finally:
            remove_snapshot(snapshot)

    def _send_settled(self, attempt: int, linked: Stamps, snapshot: Path) -> bool:
        """Send the snapshot without files that still change, unless the service would lose what it has."""
        if not linked:
            return False
        sleep(self._pace.settling_s)
        settled = drop_changed(snapshot, linked)
        changing = linked.keys() - settled.keys()
        may_replace_it = may_replace(self._sent.names(attempt), settled=settled.keys(), changing=changing)
        if not settled or not may_replace_it:
            return False
        return self._pack_and_send(attempt, snapshot, only=settled)

    def _pack_and_send(self, attempt: int, folder: Path, *, only: Stamps | None = None) -> bool:
        """Send the folder as an archive; False, and nothing is sent, if its content has changed."""
        archive = self._folder / f"{attempt}.tar.gz"
        archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            pack(folder, archive)
            packed = stamps_of(folder, but=())
            if only is not None and packed != only:
                return False
            self._sent.begin(attempt, packed.keys())
            is_running = only is not None
            self._connection.send_checkpoints(
                attempt, archive, may_go_on=self._may_go_on if is_running else lambda: True
            )
        finally:
            archive.unlink(missing_ok=True)
        self._sent.finish(attempt, packed)
        return True

    def _is_running(self, attempt: int) -> bool:
        report = next(iter(self._engine.poll([attempt])))
        return report.phase is Phase.RUNNING and report.started_at is not None

    def _checkpoints_of(self, attempt: int) -> Path | None:
        """Folder of the checkpoints; None for a further rank of a gang: the archive of a job is that of rank 0."""
        launch = AttemptFolder(self._attempts / str(attempt)).read_launch()
        env = launch["ranks"][0]["env"] if launch is not None else {}
        return Path(env["MOTLEY_CHECKPOINT_DIR"]) if env and env.get("MOTLEY_NODE_RANK", "0") == "0" else None

    def _forget_others(self, attempts: Collection[int]) -> None:
        self._sent.keep(set(attempts))
        self._due_at_s = {attempt: due for attempt, due in self._due_at_s.items() if attempt in attempts}
        self._failures = {attempt: times for attempt, times in self._failures.items() if attempt in attempts}
        self._last_waits.intersection_update(attempts)
