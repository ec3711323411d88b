"""Supervisor of one attempt: `python -m engines.supervision.supervisor <folder> <lock>`, apart from the service.

It inherits the attempt's lock. When it exits by itself, no process of the attempt is left and `exit.json` has the
exit code; when it is killed, the init processes of its ranks read the end of their input and kill all.
"""

import os
import selectors
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from math import inf
from pathlib import Path
from types import MappingProxyType

from engines.attempt_files import (
    AttemptFolder,
    ExitFile,
    LaunchFile,
    RankCommand,
    StartedFile,
    is_gone,
    release_space,
    utc_now,
    write_json,
    write_whole,
)
from engines.lease_file import LeaseFile
from engines.linux import become_subreaper, process_space, seconds_since_boot
from engines.masked_log import masked_texts
from engines.progress import MOST_COUNTED, ProgressTail, progress_to_json
from engines.protocol import StopReason
from engines.supervision.gpu_hooks import StoppedBeforeStart, in_words, run_hooks
from engines.supervision.processes import descendants, kill, marked, reap
from engines.supervision.rank import Rank
from engines.supervision.session_socket import open_socket
from engines.supervision.unpack import CodeNotUnpacked, unpack_code

TICK_S = 0.1
SWEEP_S = 0.02
RETRY_S = 1.0
SIBLING_GRACE_S = 5.0
"""Grace period of the other ranks after one has failed."""
FORCE_AFTER_S = 2.0
"""Time after which an init process that did not carry out `kill` is killed itself."""
LAST_READS = 64
"""Reads of a megabyte each at the end: a job may leave a terabyte of progress, and its GPUs must not wait for it."""
STOPPED_BEFORE_START = 143
NOT_UNPACKED = 74
"""sysexits.h: EX_IOERR."""
BAD_ARCHIVE = 65
"""sysexits.h: EX_DATAERR."""
GPU_FAULT = 69
"""sysexits.h: EX_UNAVAILABLE."""
HINTS = {
    126: "The command could not be executed: see stderr, and check that it is executable.",
    127: "The command was not found: see stderr, give its full path, or set PATH in `env`.",
}


RankStarter = Callable[[int, LaunchFile, AttemptFolder], Rank]
"""Starts the rank of this number."""


class Supervisor:
    """Runs one attempt from its start to the proof that no process of it is left."""

    def __init__(
        self,
        folder: AttemptFolder,
        launch: LaunchFile,
        start_rank: RankStarter = Rank,
        *,
        has_socket: bool = False,
        code_s: float | None = None,
    ) -> None:
        self._folder = folder
        self._launch = launch
        self._code_s = code_s
        self._start_rank = start_rank
        self._started_at, self._began_s = utc_now(), seconds_since_boot()
        self._progress = [
            ProgressTail(
                folder.progress_lines(number),
                started_at=self._started_at,
                milestones=rank["env"].get("MOTLEY_MILESTONES", ""),
            )
            for number, rank in enumerate(launch["ranks"])
        ]
        self._selector = selectors.DefaultSelector()
        self._socket = open_socket(folder) if has_socket else None
        self._ranks: list[Rank] = []
        self._running: list[Rank] = []
        self._deadline_s = inf
        self._exit_code = 0
        self._message = ""
        self._node_failed = False
        self._missing: dict[str, str] = {}
        self._lease_over = False

    def run(self) -> None:
        self._begin()
        while self._running:
            self._tick()
        if self._socket is not None:
            self._socket.close()
        self._sweep()
        self._close()
        ran_s, ended_at = seconds_since_boot() - self._began_s, utc_now()
        faulty_gpus = run_hooks(self._launch, "after")
        if self._folder.is_gone():  # nobody looks for its end, and the engine may be given the attempt once more
            return
        write_exit(
            self._folder,
            exit_code=self._exit_code,
            started_at=self._started_at,
            ran_s=ran_s,
            ended_at=ended_at,
            message=self._message or HINTS.get(self._exit_code, ""),
            node_failed=self._node_failed,
            silent_nodes=[rank.silent_node for rank in self._ranks if rank.silent_node],
            missing_storage=self._missing,
            faulty_gpus=faulty_gpus,
            lease_over=self._lease_over,
        )

    def _begin(self) -> None:
        at = self._started_at.isoformat()
        started = StartedFile(at=at, boot_s=self._began_s, process_space=process_space())
        if self._code_s is not None:
            started["code_s"] = self._code_s
        write_json(self._folder.started, started)
        try:
            for number in range(len(self._launch["ranks"])):
                self._ranks.append(self._start_rank(number, self._launch, self._folder))
        except OSError as error:
            self._fail(
                126, f"The node could not start another process ({error.strerror}): check its load and its limits."
            )
        self._running = list(self._ranks)
        for rank in self._ranks:
            rank.register(self._selector)
        if self._socket is not None:
            self._socket.register(self._selector)
        if self._exit_code:
            self._stop_siblings()

    def _tick(self) -> None:
        for key, _ in self._selector.select(TICK_S):
            if key.data.pump(key.fd) == 0:  # end of file
                self._selector.unregister(key.fd)
        self._obey_stop()
        self._obey_lease()
        self._obey_go()
        self._enforce_deadline()
        self._collect()
        self._follow_progress()
        if self._socket is not None:
            self._socket.collect()

    def _obey_stop(self) -> None:
        stop = self._folder.read_stop()
        if stop is not None:
            self._say_why(stop["reason"])
            self._stop_within(stop["grace_s"])
        elif self._folder.is_gone():  # the engine does not know the attempt any more: it may run elsewhere
            self._stop_within(0.0)

    def _obey_lease(self) -> None:
        """Stop when the lease runs out: the service may then start the job elsewhere."""
        left_s = _lease_left_s(self._launch)
        if left_s is not None:
            self._lease_over |= self._deadline_s == inf
            self._say_why(StopReason.DRAIN)
            self._stop_within(left_s)

    def _obey_go(self) -> None:
        """Let prepared ranks start their command, unless the attempt is being stopped."""
        if self._launch.get("waits") and self._deadline_s == inf and self._folder.go.exists():
            for rank in self._running:
                if self._folder.ready(rank.number).exists():
                    rank.tell("go")

    def _say_why(self, reason: str) -> None:
        if not self._folder.stop_reason.exists():
            with suppress(OSError):  # a broken disk: the job is stopped all the same
                write_whole(self._folder.stop_reason, reason, mode=0o644)

    def _stop_within(self, grace_s: float) -> None:
        """Send SIGTERM with a deadline; a repeat can only bring the deadline forward."""
        self._deadline_s = min(self._deadline_s, time.monotonic() + grace_s)
        for rank in self._running:
            rank.tell("term")

    def _enforce_deadline(self) -> None:
        late_s = time.monotonic() - self._deadline_s
        if late_s < 0:
            return
        for rank in self._running:
            rank.tell("kill")
        if late_s > FORCE_AFTER_S:
            self._force()

    def _force(self) -> None:
        """Kill all marked processes and the init processes, which a job of the same user can stop (SIGSTOP)."""
        kill(marked(self._launch["mark"]))
        for rank in self._running:
            rank.kill_init_process()

    def _collect(self) -> None:
        for rank in list(self._running):
            rank.watch()
            if (outcome := rank.outcome()) is not None:
                self._running.remove(rank)
                if name := outcome.get("missing_storage"):
                    self._missing[self._launch["ranks"][rank.number]["node"]] = name
                self._node_failed |= outcome.get("node_failed", False)
                if outcome["exit_code"] != 0:
                    self._fail(outcome["exit_code"], outcome["message"])
                    self._stop_siblings()

    def _stop_siblings(self) -> None:
        if self._deadline_s == inf:  # if the attempt was told to stop, the other ranks keep their grace period
            self._stop_within(SIBLING_GRACE_S)

    def _fail(self, exit_code: int, message: str) -> None:
        if self._exit_code == 0:  # the first failure is the cause of the others
            self._exit_code, self._message = exit_code, message

    def _follow_progress(self) -> None:
        news = [tail.read(utc_now()) for tail in self._progress]
        if any(news):
            self._write_progress()

    def _write_progress(self) -> None:
        """Store the summary of the lowest rank that reports: a framework may number its ranks otherwise than we."""
        summary = next((tail.summary for tail in self._progress if tail.summary is not None), None)
        invalid_lines = min(sum(tail.invalid_lines for tail in self._progress), MOST_COUNTED)
        if (summary is not None or invalid_lines) and not self._folder.is_gone():
            _keep_trying(self._folder.progress, progress_to_json(summary, invalid_lines), tries=1)

    def _sweep(self) -> None:
        while self._kill_left():
            time.sleep(SWEEP_S)
            reap()

    def _kill_left(self) -> bool:
        """Kill the remaining processes of the attempt; returns whether there were any."""
        left = {*marked(self._launch["mark"]), *descendants(os.getpid())}
        kill(left)
        in_cgroups = [rank.number for rank in self._ranks if rank.kill_left()]
        return bool(left or in_cgroups)

    def _close(self) -> None:
        for rank in self._ranks:
            rank.close()
        for tail in self._progress:
            for _ in range(LAST_READS):
                if not tail.read(utc_now()):
                    break
            tail.finish(utc_now())
        self._write_progress()


def write_exit(
    folder: AttemptFolder,
    *,
    exit_code: int,
    started_at: datetime | None,
    ran_s: float = 0.0,
    ended_at: datetime | None = None,
    message: str,
    node_failed: bool = False,
    silent_nodes: Sequence[str] = (),
    missing_storage: Mapping[str, str] = MappingProxyType({}),
    faulty_gpus: Mapping[str, str] = MappingProxyType({}),
    lease_over: bool = False,
) -> None:
    content = ExitFile(
        exit_code=exit_code,
        started_at=started_at.isoformat() if started_at else None,
        ended_at=(ended_at or utc_now()).isoformat(),
        ran_s=ran_s,
        message=message,
        node_failed=node_failed,
        silent_nodes=list(silent_nodes),
        missing_storage=dict(missing_storage),
        faulty_gpus=dict(faulty_gpus),
        lease_over=lease_over,
    )
    _keep_trying(folder.exit, content)
    release_space(*folder.small_files)


def _keep_trying(path: Path, content: object, *, tries: float = inf) -> None:
    """Write the file, retrying while the disk is full: without `exit.json` the GPUs are never released.

    In a folder that somebody has removed nobody looks for it.
    """
    while tries > 0 and not is_gone(path.parent):
        try:
            return write_json(path, content)
        except OSError:
            tries -= 1
            time.sleep(RETRY_S if tries > 0 else 0)
    return None


def supervise(folder: AttemptFolder, start_rank: RankStarter = Rank, *, has_socket: bool = False) -> None:
    """Run the attempt, unless it has begun already or was asked to stop before."""
    launch = folder.read_launch()
    if launch is None or folder.started.exists():
        return
    become_subreaper()
    try:
        if _must_not_start(folder, launch):
            raise StoppedBeforeStart
        if faults := run_hooks(launch, "before", partial(_must_not_start, folder, launch)):
            message = in_words(faults, "before")
            _end_unstarted(folder, exit_code=GPU_FAULT, message=message, faulty_gpus=faults)
            return
        code_s = unpack_code(launch)
        if _must_not_start(folder, launch):  # unpacking took so long
            raise StoppedBeforeStart
    except StoppedBeforeStart:
        message, lease_over = "The attempt was stopped before it started.", folder.read_stop() is None
        _end_unstarted(folder, exit_code=STOPPED_BEFORE_START, message=message, lease_over=lease_over)
        return
    except CodeNotUnpacked as error:
        exit_code = NOT_UNPACKED if error.node_failed else BAD_ARCHIVE
        _end_unstarted(folder, exit_code=exit_code, message=str(error), node_failed=error.node_failed)
        return
    Supervisor(folder, _with_secrets(launch, folder), start_rank, has_socket=has_socket, code_s=code_s).run()


def _must_not_start(folder: AttemptFolder, launch: LaunchFile) -> bool:
    """Whether the attempt was asked to stop, or its lease runs out."""
    return folder.read_stop() is not None or _lease_left_s(launch) is not None


def _end_unstarted(
    folder: AttemptFolder,
    *,
    exit_code: int,
    message: str,
    node_failed: bool = False,
    faulty_gpus: Mapping[str, str] = MappingProxyType({}),
    lease_over: bool = False,
) -> None:
    """Write the end of an attempt that started no process."""
    for path in (folder.code, folder.checkpoints, folder.secrets):
        path.unlink(missing_ok=True)
    write_exit(
        folder,
        exit_code=exit_code,
        started_at=None,
        message=message,
        node_failed=node_failed,
        faulty_gpus=faulty_gpus,
        lease_over=lease_over,
    )


def _lease_left_s(launch: LaunchFile) -> float | None:
    """Seconds left to stop before the lease ends; None if it need not stop, or has no lease."""
    lease = launch.get("lease")
    return LeaseFile(Path(lease["path"])).must_stop_within_s(lease["grace_s"]) if lease is not None else None


def _with_secrets(launch: LaunchFile, folder: AttemptFolder) -> LaunchFile:
    """The launch with the secret variables in memory; from now on they are in no file."""
    found = folder.take_secrets()
    ranks = [RankCommand(**{**rank, "env": {**rank["env"], **found}}) for rank in launch["ranks"]]
    return LaunchFile(**{**launch, "ranks": ranks, "masked": masked_texts(found.values())})


def main() -> None:
    path, lock = sys.argv[1:]
    os.set_inheritable(int(lock), False)
    supervise(AttemptFolder(Path(path)), has_socket=True)


if __name__ == "__main__":
    main()
