"""Child processes of a command that runs the service: they end with it, and are restarted if they die.

Each is a fork of the command, which has imported what they share: Django and the views take seconds to import and
100 MiB, once in place of once for each of them.
"""

import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from time import monotonic, sleep
from typing import Never

from django.conf import settings
from django.db import connections

from engines.linux import die_with

GRACE_S = 10
PAUSE_S = 0.05
TOLD_BY = (signal.SIGINT, signal.SIGTERM)
SHARED = ("scipy.optimize", "operations.loops", "gunicorn.workers.gthread")
LONGEST_NAME = 15
"""Of a process, in bytes (prctl(2), PR_SET_NAME)."""


@dataclass(frozen=True)
class Program:
    """What a child process runs, and the descriptors that it keeps; `ps -e` shows it as motley-NAME."""

    name: str
    run: Callable[[], object]
    descriptors: Sequence[int] = ()
    may_end: bool = False
    """Whether it is done when it ends with 0."""


def executing(command: list[str], descriptors: Sequence[int] = ()) -> Callable[[], object]:
    """A function that replaces its process by the command (execv), which inherits the descriptors."""

    def run() -> Never:
        for number in descriptors:
            os.set_inheritable(number, True)
        os.execv(command[0], command)  # noqa: S606 - no shell is wanted

    return run


class Child:
    """A child process: ends with its parent, even if that is killed, and is restarted if it dies."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.code: int | None = None
        """As of `subprocess.Popen`: negative for a signal, None while it runs."""
        self.pid = _forked(program)

    def poll(self) -> int | None:
        if self.code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if ended else None
        return self.code

    def signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def restart_if_ended(self) -> None:
        code = self.poll()
        if code is not None and not (self._program.may_end and code == 0):
            said = f"A process of the service ended {how_it_ended(code)}, and is restarted: {self._program.name}"
            print(said, flush=True)  # noqa: T201 - for whoever runs the command
            self.code, self.pid = None, _forked(self._program)

    def end(self) -> None:
        """Wait until the child has ended after its signal."""
        until = monotonic() + GRACE_S
        while self.poll() is None:
            if monotonic() > until:
                self.signal(signal.SIGKILL)
            sleep(PAUSE_S)


def _forked(program: Program) -> int:
    """Process id of a fork that runs the program. Signals wait until its handlers are its own."""
    parent = os.getpid()
    _flush()  # or the fork writes once more what is buffered
    before = signal.pthread_sigmask(signal.SIG_BLOCK, TOLD_BY)
    try:
        pid = os.fork()
        if pid == 0:
            _run(program, parent, partial(signal.pthread_sigmask, signal.SIG_SETMASK, before))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def _run(program: Program, parent: int, unblock: Callable[[], object]) -> Never:
    """Run the program in the fork, and exit without unwinding the parent's stack."""
    code = 1
    try:
        _leave(program, parent)
        unblock()
        program.run()
        code = 0
    except SystemExit as exit_:
        code = _exit_code(exit_)
    except BaseException:
        traceback.print_exc()
    finally:
        _flush()
        os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(BaseException):  # closed, missing or full: whatever it is, a fork must come to its exit
            stream.flush()


def _leave(program: Program, parent: int) -> None:
    """Give the fork a session, signal handlers, open files and a name of its own."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with(parent, signal.SIGTERM)
    _close_all_but(program.descriptors)
    os.chdir(settings.BASE_DIR)
    _be_named(f"motley-{program.name}")


def _be_named(name: str) -> None:
    """For `ps -e`, `pgrep` and `top`: the command line of a fork is that of its parent."""
    with suppress(OSError):  # where /proc is read-only
        Path("/proc/self/comm").write_text(name[:LONGEST_NAME])


def _close_all_but(descriptors: Sequence[int]) -> None:
    """Close all files but standard input, output and error, and these: a lock of the parent would outlive it."""
    for number in {int(path.name) for path in Path("/proc/self/fd").iterdir()} - {0, 1, 2, *descriptors}:
        with suppress(OSError):  # of the listing itself
            os.close(number)


def _exit_code(exit_: SystemExit) -> int:
    if exit_.code is None or isinstance(exit_.code, int):
        return exit_.code or 0
    print(exit_.code, file=sys.stderr)  # noqa: T201 - as the interpreter does
    return 1


def how_it_ended(code: int) -> str:
    """The signal, by its name unless it has none (real-time ones), or the exit code."""
    if code >= 0:
        return f"with {code}"
    return f"by {signal.Signals(-code).name}" if -code in set(signal.Signals) else f"by signal {-code}"


def import_what_they_share() -> None:
    """Import before the first fork; the collector leaves that alone, so that the memory stays shared."""
    for name in (settings.ROOT_URLCONF, *SHARED):
        import_module(name)
    gc.collect()
    gc.freeze()


def hear_signals() -> threading.Event:
    """Event that SIGINT and SIGTERM set. To be called early: what takes seconds is done without children."""
    told = threading.Event()
    for number in TOLD_BY:
        signal.signal(number, lambda *_: told.set())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it is ignored, as some callers leave it, no exit code is kept
    return told


def run_until_told(programs: Sequence[Program], told: threading.Event) -> None:
    """Run each program in a child process, and restart those that die, until the event is set."""
    _be_named("motley")
    connections.close_all()  # none may be used by two processes
    children = [] if told.is_set() else [Child(program) for program in programs]
    while not told.wait(1):
        for child in children:
            child.restart_if_ended()
    for child in children:
        child.signal(signal.SIGTERM)
    for child in children:
        child.end()
