"""The first process of one rank: starts the job, passes SIGTERM on, reaps, and leaves nothing behind.

It is process 1 of a PID namespace, whose death takes all the rest with it, or else a subreaper. Standard input brings
a `Plan` on one line, then the words `term` and `kill`; its end means that the supervisor died, and is a `kill`.
The answer, an `Outcome` on one line, goes to descriptor `REPORT`.
"""

import errno
import json
import os
import selectors
import signal
import sys
import time
from contextlib import suppress
from typing import NoReturn, TypedDict

from engines.kernel import become_subreaper, die_with_parent, forbid_new_privileges
from engines.processes import descendants, kill, reap

GROUP_LOOK_S = 0.1
KILL_LOOK_S = 0.02
USUAL = (
    signal.SIGCHLD,
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGPIPE,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGXFSZ,
)


class Plan(TypedDict):
    """One rank, ready to run."""

    argv: list[str]
    env: dict[str, str]
    workdir: str
    user: list[int] | None
    """User and group id to become, or None to stay who we are."""
    report: int
    """The descriptor that the outcome is written to."""


class Outcome(TypedDict):
    exit_code: int
    message: str


def main() -> None:
    commands = _Lines(sys.stdin.fileno())
    plan: Plan = json.loads(commands.wait_for_line())
    os.set_inheritable(plan["report"], False)
    become_subreaper()
    outcome = _run(plan, commands)
    if os.getpid() != 1:  # the death of process 1 does this at once, and without a race
        _kill_descendants()
    os.write(plan["report"], json.dumps(outcome).encode())


def _run(plan: Plan, commands: "_Lines") -> Outcome:
    child_ended = _wake_on_child()
    job, complaint = _start(plan)
    return Outcome(exit_code=_follow(job, commands, child_ended), message=complaint)


def _follow(job: int, commands: "_Lines", child_ended: int) -> int:
    """Wait for the job, and, once it was told to stop, for the rest of its group: a shell dies of SIGTERM at once
    while the program that it started still writes its checkpoint."""
    exit_code: int | None = None
    stopping = False
    with selectors.DefaultSelector() as selector:
        selector.register(commands.descriptor, selectors.EVENT_READ)
        selector.register(child_ended, selectors.EVENT_READ)
        while exit_code is None or (stopping and _group_lives(job)):
            for word in commands.read():  # before any wait: the first may have come along with the plan
                stopping = True
                _signal_group(job, signal.SIGTERM if word == "term" else signal.SIGKILL)
                if word != "term":
                    return 128 + signal.SIGKILL if exit_code is None else exit_code
            selector.select(GROUP_LOOK_S if exit_code is not None else None)
            exit_code = reap().get(job, exit_code)
            _drain(child_ended)
    return exit_code


class _Lines:
    """Lines from a pipe, without ever blocking once the first has come; its end reads as `kill`."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._partial = b""

    def wait_for_line(self) -> str:
        while b"\n" not in self._partial:
            chunk = os.read(self.descriptor, 65536)
            if not chunk:
                raise SystemExit(128 + signal.SIGKILL)  # the supervisor died before it had said what to run
            self._partial += chunk
        line, _, self._partial = self._partial.partition(b"\n")
        os.set_blocking(self.descriptor, False)
        return line.decode()

    def read(self) -> list[str]:
        chunk, ended = self._read_chunk()
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        return [line.decode() for line in lines] + (["kill"] if ended else [])

    def _read_chunk(self) -> tuple[bytes, bool]:
        """What has come, and whether that was the end."""
        try:
            chunk = os.read(self.descriptor, 65536)
        except BlockingIOError:
            return b"", False
        return chunk, not chunk


def _start(plan: Plan) -> tuple[int, str]:
    """The process id of the job, leader of a group of its own by now, and what kept it from running, if anything."""
    complaint, complain = os.pipe()
    job = os.fork()
    if job == 0:
        _become(plan, complain)
    os.close(complain)
    with os.fdopen(complaint, errors="replace") as told:
        return job, told.read()  # ends when the command is executed: the pipe closes itself


def _become(plan: Plan, complain: int) -> NoReturn:
    try:
        _prepare(plan)
        os.execvpe(plan["argv"][0], plan["argv"], plan["env"])  # noqa: S606 - a list is executed as it is
    except (OSError, ValueError) as error:
        os.write(complain, _advice(error, plan).encode(errors="replace")[:4096])
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        os._exit(127 if missing else 126)


def _prepare(plan: Plan) -> None:
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
    if plan["user"] is not None:
        uid, gid = plan["user"]
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    forbid_new_privileges()
    die_with_parent(signal.SIGKILL)  # after setuid, which clears it
    os.chdir(plan["workdir"])  # as the job's user, so that only what that user may enter is entered
    signal.set_wakeup_fd(-1)
    for number in USUAL:  # Python ignores some of them, and whoever started the service perhaps others
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _advice(error: OSError | ValueError, plan: Plan) -> str:
    if isinstance(error, ValueError):
        return f"The command or its environment cannot be passed on ({error}): take NUL characters out of it."
    return _advice_on_workdir(plan["workdir"]) or _advice_on_program(error, plan["argv"][0])


def _advice_on_workdir(workdir: str) -> str:
    if not os.path.isdir(workdir):  # noqa: PTH112 - pathlib costs this process a third of its start
        return f"The working folder {workdir} does not exist on this node: create it, or correct `workdir`."
    if not os.access(workdir, os.X_OK):
        return f"The job's user may not enter the working folder {workdir}: give it access, or choose another."
    return ""


def _advice_on_program(error: OSError, program: str) -> str:
    if isinstance(error, FileNotFoundError):
        return f"The command {program!r} was not found on this node: give its full path, or set PATH in `env`."
    if error.errno == errno.E2BIG:
        return "The command and its environment are too long for this node: shorten them, or use a script."
    if error.errno == errno.ENOEXEC:
        return f"{program!r} is not a program that this node can run: name its interpreter in its first line (#!)."
    return f"{program!r} could not be started ({error.strerror}): check that the job's user may read and execute it."


def _wake_on_child() -> int:
    """A descriptor that becomes readable when a child ends."""
    awake, wake = os.pipe()
    os.set_blocking(awake, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return awake


def _drain(descriptor: int) -> None:
    with suppress(BlockingIOError):
        os.read(descriptor, 65536)


def _signal_group(group: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _kill_descendants() -> None:
    while left := descendants(os.getpid()):
        kill(left)
        time.sleep(KILL_LOOK_S)
        reap()


if __name__ == "__main__":
    main()
