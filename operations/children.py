"""Child processes of a command that runs the service: they end with it, and are restarted if they die."""

import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from django.conf import settings

GRACE_S = 10
UNLESS_ORPHANED = ("/bin/sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"')
"""The signal is for a parent that dies from now on: it may have been killed between the fork and setpriv."""


@dataclass(frozen=True)
class Program:
    """Command of a child process, and the descriptors that it inherits."""

    command: Sequence[str]
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    descriptors: Sequence[int] = ()
    may_end: bool = False
    """Whether it is done when it ends with 0."""


class Child:
    """A child process: ends with its parent, even if that is killed, and is restarted if it dies."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.name = name_of(program.command)
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = ["setpriv", "--pdeathsig", "TERM", *UNLESS_ORPHANED, str(os.getpid()), *self._program.command]
        return subprocess.Popen(  # noqa: S603
            command,
            env=self._program.environment,
            cwd=settings.BASE_DIR,
            start_new_session=True,
            pass_fds=self._program.descriptors,
        )

    def restart_if_ended(self) -> None:
        code = self.process.poll()
        if code is not None and not (self._program.may_end and code == 0):
            said = f"A process of the service ended {how_it_ended(code)}, and is restarted: {self.name}"
            print(said, flush=True)  # noqa: T201 - for whoever runs the command
            self.process = self._start()

    def end(self) -> None:
        """Wait until the child has ended after its signal."""
        try:
            self.process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def name_of(command: Sequence[str]) -> str:
    """Name of a child process for messages: its program and command, and the loop of a scheduler."""
    loop = command[command.index("--only") :][:2] if "--only" in command else ()
    return " ".join([*command[1:3], *loop])


def how_it_ended(code: int) -> str:
    """The signal, by its name unless it has none (real-time ones), or the exit code."""
    if code >= 0:
        return f"with {code}"
    return f"by {signal.Signals(-code).name}" if -code in set(signal.Signals) else f"by signal {-code}"


def run_until_told(programs: Sequence[Program]) -> None:
    """Run the programs until SIGINT or SIGTERM."""
    told = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: told.set())
    children = [Child(program) for program in programs]
    while not told.wait(1):
        for child in children:
            child.restart_if_ended()
    for child in children:
        child.process.terminate()
    for child in children:
        child.end()
