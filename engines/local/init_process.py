"""Init process of one rank: starts the job, forwards SIGTERM, reaps children, and leaves no process behind.

It is process 1 of a PID namespace, whose exit kills all processes in it, or else a child subreaper. It reads a
`RankStart` from standard input on one line, then the commands `term` and `kill`; end of file means that the supervisor
died, and counts as `kill`. It writes a `RankExit` to the descriptor `report`.
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

from engines.linux import become_subreaper, die_with_parent, forbid_new_privileges
from engines.local.processes import descendants, kill, reap

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


class RankStart(TypedDict):
    """Input of the init process: command, environment and user of the rank."""

    argv: list[str]
    env: dict[str, str]
    workdir: str
    user: list[int] | None
    """User and group id to switch to; None keeps those of the service."""
    report: int
    """Descriptor to which the `RankExit` is written."""


class RankExit(TypedDict):
    exit_code: int
    message: str


def main() -> None:
    commands = _Lines(sys.stdin.fileno())
    plan: RankStart = json.loads(commands.wait_for_line())
    os.set_inheritable(plan["report"], False)
    become_subreaper()
    outcome = _run(plan, commands)
    if os.getpid() != 1:  # the exit of process 1 does this atomically
        _kill_descendants()
    os.write(plan["report"], json.dumps(outcome).encode())


def _run(plan: RankStart, commands: "_Lines") -> RankExit:
    child_ended = _wake_on_child()
    job, complaint = _start(plan)
    return RankExit(exit_code=_follow(job, commands, child_ended), message=complaint)


def _follow(job: int, commands: "_Lines", child_ended: int) -> int:
    """Wait for the job and, once it was told to stop, for its process group: a shell dies of SIGTERM at once while the
    program that it started still writes its checkpoint."""
    exit_code: int | None = None
    stopping = False
    with selectors.DefaultSelector() as selector:
        selector.register(commands.descriptor, selectors.EVENT_READ)
        selector.register(child_ended, selectors.EVENT_READ)
        while exit_code is None or (stopping and _group_lives(job)):
            for word in commands.read():  # before waiting: a command may have come together with the first line
                stopping = True
                _signal_group(job, signal.SIGTERM if word == "term" else signal.SIGKILL)
                if word != "term":
                    return 128 + signal.SIGKILL if exit_code is None else exit_code
            selector.select(GROUP_LOOK_S if exit_code is not None else None)
            exit_code = reap().get(job, exit_code)
            _drain(child_ended)
    return exit_code


class _Lines:
    """Lines from a pipe, non-blocking after the first; end of file reads as `kill`."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._partial = b""

    def wait_for_line(self) -> str:
        while b"\n" not in self._partial:
            chunk = os.read(self.descriptor, 65536)
            if not chunk:
                raise SystemExit(128 + signal.SIGKILL)  # the supervisor died before it sent the command
            self._partial += chunk
        line, _, self._partial = self._partial.partition(b"\n")
        os.set_blocking(self.descriptor, False)
        return line.decode()

    def read(self) -> list[str]:
        chunk, ended = self._read_chunk()
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        return [line.decode() for line in lines] + (["kill"] if ended else [])

    def _read_chunk(self) -> tuple[bytes, bool]:
        """New bytes, and whether this is the end of file."""
        try:
            chunk = os.read(self.descriptor, 65536)
        except BlockingIOError:
            return b"", False
        return chunk, not chunk


def _start(plan: RankStart) -> tuple[int, str]:
    """Fork the job as leader of a new process group; return its process id, and why it could not be executed."""
    complaint, complain = os.pipe()
    job = os.fork()
    if job == 0:
        _become(plan, complain)
    os.close(complain)
    with os.fdopen(complaint, errors="replace") as told:
        return job, told.read()  # end of file when the command is executed: the pipe is close-on-exec


def _become(plan: RankStart, complain: int) -> NoReturn:
    try:
        _prepare(plan)
        os.execvpe(plan["argv"][0], plan["argv"], plan["env"])  # noqa: S606 - a list is executed as it is
    except (OSError, ValueError) as error:
        os.write(complain, _advice(error, plan).encode(errors="replace")[:4096])
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        os._exit(127 if missing else 126)


def _prepare(plan: RankStart) -> None:
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
    if plan["user"] is not None:
        uid, gid = plan["user"]
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    forbid_new_privileges()
    die_with_parent(signal.SIGKILL)  # after setuid, which clears it
    os.chdir(plan["workdir"])  # after setuid, so that the job's user needs the permission
    signal.set_wakeup_fd(-1)
    for number in USUAL:  # Python ignores some of them, and the parent of the service may ignore others
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _advice(error: OSError | ValueError, plan: RankStart) -> str:
    if isinstance(error, ValueError):
        return f"The command or its environment cannot be executed ({error}): remove NUL characters."
    return _advice_on_workdir(plan["workdir"]) or _advice_on_program(error, plan["argv"][0])


def _advice_on_workdir(workdir: str) -> str:
    if not os.path.isdir(workdir):  # noqa: PTH112 - pathlib costs this process a third of its start
        return f"The working folder {workdir} does not exist on this node: create it, or change `workdir`."
    if not os.access(workdir, os.X_OK):
        return f"The job's user has no access to the working folder {workdir}: grant it, or choose another folder."
    return ""


def _advice_on_program(error: OSError, program: str) -> str:
    if isinstance(error, FileNotFoundError):
        return f"The command {program!r} was not found on this node: give its full path, or set PATH in `env`."
    if error.errno == errno.E2BIG:
        return "The command and its environment are too long for this node: shorten them, or use a script."
    if error.errno == errno.ENOEXEC:
        return f"{program!r} is not executable on this node: name its interpreter in the first line (#!)."
    return f"{program!r} could not be started ({error.strerror}): check that the job's user may read and execute it."


def _wake_on_child() -> int:
    """Descriptor that becomes readable when a child exits (SIGCHLD)."""
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
