"""The agent's loop: report the machine and its attempts to the service, and carry out the commands in the answer.

The jobs run under supervisors of their own, as those of any local engine: they outlive the agent, which finds them by
their files when it is started again. They stop by themselves when the service has not been heard for the time of the
lease, whether the agent lives or not.
"""

import logging
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

from engines.agent.checkpoint_uploads import CheckpointUploads
from engines.agent.condition import Conditions
from engines.agent.connection import CONFLICT, FORKED, OTHER_RELEASE, UNAUTHORIZED, Connection, Refused, Unheard
from engines.agent.kept_jobs import KeptJobs
from engines.agent.machine import Describe, machine_digest
from engines.agent.marks import Marks
from engines.agent.messages import VERSION, AttemptNews, CheckpointOrder, Orders, ShareOrder, Sync
from engines.agent.network import Network
from engines.agent.program import Program
from engines.agent.sessions import Sessions
from engines.agent.transfers import GpuSamples, Transfers
from engines.agent.update import Updates
from engines.lease_file import LeaseFile
from engines.linux import seconds_since_boot
from engines.local.engine import LocalEngine
from engines.protocol import (
    AttemptReport,
    CheckpointTimes,
    EngineError,
    GpuReading,
    NodeReport,
    NodeShare,
    Phase,
    StopReason,
)

log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
FILES_PAUSE_S = 1.0
NEWS_EVERY_S = 1.0


class Agent:
    """Agent of one machine; its whole state is in files below `folder`."""

    def __init__(
        self,
        folder: Path,
        connection: Connection,
        engine: LocalEngine,
        describe: Describe,
        *,
        notice: timedelta,
        uploads: CheckpointUploads | None = None,
        read_gpus: Callable[[NodeReport], Sequence[GpuReading]] | None = None,
        network: Callable[[], Network] | None = None,
        condition: Conditions | None = None,
        updates: Updates | None = None,
        site: bool = False,
    ) -> None:
        self._connection, self._engine, self._describe, self._notice = connection, engine, describe, notice
        self._lease = LeaseFile(lease_path(folder))
        self._leave, self._marks = leave_path(folder), Marks(mark_path(folder))
        self._uploads = uploads or CheckpointUploads(folder, connection, engine)
        self._transfers = Transfers(
            folder, connection, engine, self._uploads, may_start=lambda: self._lease.left_s() > 0, network=network
        )
        self._sessions = Sessions(connection, engine)
        self._kept = KeptJobs(folder, engine, self._transfers.jobs_here)
        self._site, self._machine = site, machine_digest()
        self._condition = condition or Conditions(Program.own())
        self._updates = updates or Updates(folder, Program.own())
        self._read_gpus = read_gpus or GpuSamples()
        self._woken = threading.Event()
        self._heard = threading.Event()
        self._ended = threading.Event()
        self._left_by_s: float | None = None
        self._pause_s = FIRST_PAUSE_S
        self._told: dict[int, tuple[Phase, bool]] = {}
        self._is_answered = False
        self._shares: dict[int, NodeShare] = {}
        self._checkpoint_times: dict[int, CheckpointTimes] = {}

    def run(self) -> int:
        """Work until the machine has left; returns the exit status of the process.

        At SIGTERM a volunteer's machine begins to leave. The agent of a server of the site ends: its jobs run on under
        their supervisors, and the next agent finds them.
        """
        stopped = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: self._end() if self._site else self.begin_to_leave())
        self._uploads.clear_away()
        for work in (self._transfers.run, self._uploads.run):
            threading.Thread(target=self._once_heard, args=(work, stopped), daemon=True).start()
        threading.Thread(target=self._condition.run, args=(stopped,), daemon=True).start()
        try:
            while not self._ended.is_set() and not self.turn():
                self._wait()
        except Refused as error:
            log.error("the service refuses this machine, whose jobs are stopped: %s", error)
            self._stop_all(timedelta() if error.code == FORKED else self._notice)
            return 3
        finally:
            stopped.set()
            self._connection.close()
        return 0

    def _wait(self) -> None:
        """Wait for the next turn: for the pause, or until there is news of an attempt that the service waits for."""
        until_s = seconds_since_boot() + self._pause_s
        while (left_s := until_s - seconds_since_boot()) > 0 and not self._woken.wait(min(left_s, NEWS_EVERY_S)):
            if left_s > NEWS_EVERY_S and self._is_answered and self._state(self._reports()) != self._told:
                break
        self._woken.clear()

    def _reports(self) -> Sequence[AttemptReport]:
        return self._engine.poll(self._engine.attempts())

    def _state(self, reports: Sequence[AttemptReport]) -> dict[int, tuple[Phase, bool]]:
        """Of each attempt here, its phase, and whether it is ready: what others wait for."""
        return {one.attempt: (one.phase, self._engine.is_ready(one.attempt)) for one in reports}

    def _once_heard(self, work: Callable[[threading.Event, float], None], stopped: threading.Event) -> None:
        """Transfer no file before the service has taken a message: this may be a copy of the machine."""
        self._heard.wait()
        work(stopped, FILES_PAUSE_S)

    def _end(self) -> None:
        self._ended.set()
        self._woken.set()

    def begin_to_leave(self) -> None:
        """Announce that the owner takes the machine back: its jobs are moved away within the notice."""
        if not self._leave.exists():
            self._leave.write_text(str(self._notice.total_seconds()))
        self._woken.set()

    def turn(self) -> bool:
        """Report once and carry out commands; returns whether the machine may leave. Raises `Refused`."""
        try:
            return self._tell_and_obey()
        except Refused as error:
            if self._is_final(error):
                raise
            log.warning("%s", error)
            self._alone(partial(self._change_for, error))
        except Unheard as error:
            log.warning("%s", error)
        except Exception:  # of a full disk, or of a driver: it may pass, and the jobs run on until their lease is over
            log.exception("the turn failed")
        self._alone(self._updates.watch)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        return False

    def _alone(self, act: Callable[[], None]) -> None:
        """Do what is no part of a turn: where it fails, as by a full disk, the agent goes on."""
        try:
            act()
        except Exception:
            log.exception("the program could not be changed")

    def _change_for(self, error: Refused) -> None:
        """Change to the program of a service that no longer understands this one: its answers have no order for it."""
        if self._site and error.code == OTHER_RELEASE:
            self._updates.change(self._connection)

    def _is_final(self, error: Refused) -> bool:
        """Whether the machine may no longer work; a server of another release is updated while its lease lasts."""
        if self._site and error.code == OTHER_RELEASE:
            return False
        return error.status in (UNAUTHORIZED, CONFLICT)

    def _tell_and_obey(self) -> bool:
        self._watch_notice()
        self._is_answered = False
        asked_at_s = seconds_since_boot()
        fetching = self._transfers.fetching  # before the reports: one that starts meanwhile is among both
        reports = self._reports()
        self._told = self._state(reports)
        orders = self._connection.sync(self._news(reports, fetching))
        self._is_answered = True
        has_work = bool(self._told or orders.launches or self._transfers.fetching)
        is_kept = self._marks.keep(orders.mark, has_work=has_work)
        self._lease.renew(asked_at_s, orders.lease.total_seconds())
        self._heard.set()
        self._updates.heard()
        self._pause_s = orders.pause.total_seconds()
        self._obey(orders if is_kept else replace(orders, launches=()))
        return orders.may_go and self._leave.exists()

    def _news(self, reports: Sequence[AttemptReport], fetching: Sequence[int]) -> Sync:
        known = [one for one in reports if one.attempt not in fetching]
        waiting = [AttemptNews(AttemptReport(attempt, Phase.LAUNCHING), fetching=True) for attempt in fetching]
        node = self._describe(has_work=bool(reports or fetching))
        condition = self._condition(node)
        kept = self._kept.part() if condition is not None else None
        return Sync(
            VERSION,
            self._machine,
            node,
            attempts=[*map(self._news_of, known), *waiting],
            leaving=self._leaving(),
            gpus=self._read_gpus(node),
            condition=condition,
            kept=kept.sizes if kept is not None else {},
            kept_after=kept.after if kept is not None else None,
            kept_to_the_end=kept is not None and kept.is_last,
            heard=self._marks.to_show(),
        )

    def _news_of(self, report: AttemptReport) -> AttemptNews:
        attempt = report.attempt
        handed_over, ready = self._transfers.is_handed_over(attempt), self._engine.is_ready(attempt)
        return AttemptNews(report, handed_over=handed_over, ready=ready)

    def _obey(self, orders: Orders) -> None:
        """Carry out the service's commands, which may be repeated."""
        self._forget(orders)
        self._kept.discard(orders.discard)
        for stop in orders.stops:
            self._engine.stop(stop.attempt, reason=stop.reason, grace=stop.grace)
        for attempt in orders.go:
            self._engine.go(attempt)
        self._share(orders.shares)
        self._tell_checkpoint_times(orders.checkpoint_times)
        for session in orders.sessions:
            self._sessions.open(session)
        known = self._engine.attempts()
        for launch in orders.launches:
            if launch.attempt not in known or next(iter(self._engine.poll([launch.attempt]))).phase is Phase.UNKNOWN:
                self._transfers.add(launch)
        if orders.program and self._site:  # last: it may put another program in our place
            self._alone(partial(self._updates.change, self._connection, orders.program, orders.tries))

    def _share(self, orders: Sequence[ShareOrder]) -> None:
        """Change the limits of attempts whose share is new to this process; the same once more changes nothing.

        A share that cannot be set, as of an attempt that is just ending, holds up nothing else.
        """
        known, self._shares = self._shares, {}
        for one in orders:
            try:
                if known.get(one.attempt) != one.share:
                    self._engine.set_share(one.attempt, [one.share])
                self._shares[one.attempt] = one.share
            except OSError as error:
                log.warning("the share of attempt %d could not be set: %s", one.attempt, error)

    def _tell_checkpoint_times(self, orders: Sequence[CheckpointOrder]) -> None:
        """Write changed checkpoint times into the attempts' files; a failed write is repeated with the next answer."""
        known, self._checkpoint_times = self._checkpoint_times, {}
        for one in orders:
            try:
                if known.get(one.attempt) != one.times:
                    self._engine.set_checkpoint_times(one.attempt, one.times)
                self._checkpoint_times[one.attempt] = one.times
            except (OSError, EngineError) as error:
                log.warning("attempt %d could not be told when checkpoints pay: %s", one.attempt, error)

    def _forget(self, orders: Orders) -> None:
        """Remove the files of attempts, and of their jobs unless a later attempt is here.

        One that runs is stopped instead; the service repeats the command when it has ended.
        """
        for report in self._engine.poll(orders.forget):
            if report.phase.is_over or report.phase is Phase.UNKNOWN:
                self._transfers.forget(report.attempt, keep_job=report.attempt in orders.keep)
            else:
                self._engine.stop(report.attempt, reason=StopReason.CANCEL, grace=timedelta())

    def _watch_notice(self) -> None:
        """Stop attempts that still run when the notice is over."""
        notice = self._leaving()
        if notice is None:
            return
        now_s = seconds_since_boot()
        self._left_by_s = self._left_by_s or now_s + notice.total_seconds()
        if now_s >= self._left_by_s:
            self._stop_all(timedelta())

    def _leaving(self) -> timedelta | None:
        """The notice with which the owner takes the machine back; None if it stays."""
        try:
            return timedelta(seconds=float(self._leave.read_text() or self._notice.total_seconds()))
        except FileNotFoundError:
            return None

    def _stop_all(self, grace: timedelta) -> None:
        for report in self._engine.poll(self._engine.attempts()):
            if not (report.phase.is_over or report.phase is Phase.UNKNOWN):
                self._engine.stop(report.attempt, reason=StopReason.DRAIN, grace=grace)


def lease_path(folder: Path) -> Path:
    return folder / "lease.json"


def leave_path(folder: Path) -> Path:
    return folder / "leave"


def mark_path(folder: Path) -> Path:
    """Mark of the last answer that this machine has had."""
    return folder / "mark.json"
