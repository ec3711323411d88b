"""Supervisor process of one attempt: `python -m engines.local.supervisor <folder> <lock>`, separate from the service.

It inherits the attempt's lock. When it exits by itself, no process of the attempt is left and `exit.json` has the
exit code; when it is killed, the init processes of its ranks read the end of their input and kill all.
"""

import os
import selectors
import sys
import time
from datetime import datetime
from math import inf
from pathlib import Path

from engines.attempt_files import AttemptFolder, ExitFile, LaunchFile, StartedFile, utc_now, write_json, write_whole
from engines.linux import become_subreaper
from engines.local.processes import descendants, kill, marked, reap
from engines.local.rank import Rank
from engines.progress import ProgressTail, progress_to_json

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
HINTS = {
    126: "The command could not be executed (exit 126): see stderr, and check that it is executable.",
    127: "The command was not found (exit 127): see stderr, give its full path, or set PATH in `env`.",
}


class Supervisor:
    """Runs one attempt from its start to the proof that no process of it is left."""

    def __init__(self, folder: AttemptFolder, launch: LaunchFile) -> None:
        self._folder = folder
        self._launch = launch
        self._started_at = utc_now()
        self._progress = ProgressTail(folder.progress_lines(0), started_at=self._started_at)
        self._selector = selectors.DefaultSelector()
        self._ranks: list[Rank] = []
        self._running: list[Rank] = []
        self._deadline_s = inf
        self._exit_code = 0
        self._message = ""

    def run(self) -> None:
        self._begin()
        while self._running:
            self._tick()
        self._sweep()
        self._close()
        write_exit(
            self._folder,
            exit_code=self._exit_code,
            started_at=self._started_at,
            message=self._message or HINTS.get(self._exit_code, ""),
        )

    def _begin(self) -> None:
        write_json(self._folder.started, StartedFile(at=self._started_at.isoformat()))
        try:
            for number in range(len(self._launch["ranks"])):
                self._ranks.append(Rank(number, self._launch, self._folder))
        except OSError as error:
            self._fail(
                126, f"The node could not start another process ({error.strerror}): check its load and its limits."
            )
        self._running = list(self._ranks)
        for rank in self._ranks:
            rank.register(self._selector)
        if self._exit_code:
            self._stop_siblings()

    def _tick(self) -> None:
        for key, _ in self._selector.select(TICK_S):
            if key.data.pump(key.fd) == 0:  # end of file
                self._selector.unregister(key.fd)
        self._obey_stop()
        self._enforce_deadline()
        self._collect()
        self._follow_progress()

    def _obey_stop(self) -> None:
        stop = self._folder.read_stop()
        if stop is None:
            return
        if not self._folder.stop_reason.exists():
            write_whole(self._folder.stop_reason, stop["reason"], mode=0o644)
        self._stop_within(stop["grace_s"])

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
            if (outcome := rank.outcome()) is not None:
                self._running.remove(rank)
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
        if self._progress.read(utc_now()):
            self._write_progress()

    def _write_progress(self) -> None:
        tail = self._progress
        if tail.summary is not None or tail.invalid_lines:
            _keep_trying(self._folder.progress, progress_to_json(tail.summary, tail.invalid_lines), tries=1)

    def _sweep(self) -> None:
        while left := {*marked(self._launch["mark"]), *descendants(os.getpid())}:
            kill(left)
            time.sleep(SWEEP_S)
            reap()

    def _close(self) -> None:
        for rank in self._ranks:
            rank.close()
        for _ in range(LAST_READS):
            if not self._progress.read(utc_now()):
                break
        self._progress.finish(utc_now())
        self._write_progress()


def write_exit(folder: AttemptFolder, *, exit_code: int, started_at: datetime | None, message: str) -> None:
    content = ExitFile(
        exit_code=exit_code,
        started_at=started_at.isoformat() if started_at else None,
        ended_at=utc_now().isoformat(),
        message=message,
    )
    _keep_trying(folder.exit, content)


def _keep_trying(path: Path, content: object, *, tries: float = inf) -> None:
    """Write the file, retrying while the disk is full: without `exit.json` the GPUs are never released."""
    while tries > 0:
        try:
            return write_json(path, content)
        except OSError:
            tries -= 1
            time.sleep(RETRY_S if tries > 0 else 0)
    return None


def supervise(folder: AttemptFolder) -> None:
    launch = folder.read_launch()
    if launch is None or folder.started.exists():
        return
    if folder.read_stop() is not None:
        write_exit(
            folder,
            exit_code=STOPPED_BEFORE_START,
            started_at=None,
            message="The attempt was stopped before it started.",
        )
        return
    become_subreaper()
    Supervisor(folder, launch).run()


def main() -> None:
    path, lock = sys.argv[1:]
    os.set_inheritable(int(lock), False)
    supervise(AttemptFolder(Path(path)))


if __name__ == "__main__":
    main()
