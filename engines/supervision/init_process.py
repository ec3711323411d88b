"""Init process of one rank: starts the job, forwards SIGTERM, reaps children, and leaves no process behind.

It is process 1 of a PID namespace, whose exit kills all processes in it, or else a child subreaper. It reads a
`RankStart` from standard input on one line, then the commands `go`, `term` and `kill`; end of file means that the
supervisor died, and counts as `kill`. It writes a `RankExit` to the descriptor `report`, or to a file that the
supervisor sees.
"""

import errno
import json
import os
import resource
import select
import selectors
import signal
import stat
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn, NotRequired, TypedDict

from engines.linux import acting_as, become_subreaper, die_with_parent, forbid_new_privileges, switch_to
from engines.supervision.cgroup import join, may_join
from engines.supervision.memory_limit import MemoryLimit
from engines.supervision.memory_use import MemoryUse
from engines.supervision.processes import MARK, descendants, kill, reap

if TYPE_CHECKING:  # few jobs have a setup, and all wait for the start of this process
    from collections.abc import Sequence

    from engines.attempt_files import ContainerFile, RankLimits, SetupFile

GROUP_POLL_S = 0.1
KILL_POLL_S = 0.02
OOM_SCORE = 500
"""oom_score_adj of jobs: when memory is short, the kernel's OOM killer ends them before the service."""
HEARTBEAT_S = 5.0
LAST_OUTPUT_S = 5.0
"""Longest wait for the end of a setup's output: it may have handed its pipe to a process that is not its child."""
NOT_STARTED = 125
"""Exit code of a container runtime that could not start the container."""
NO_CGROUP = 71
"""sysexits.h: EX_OSERR."""
NOT_STARTED_ADVICE = "The container could not be started (exit 125): see stderr, and check the name of the image."
STOPPED = 128 + signal.SIGTERM
KILLED = 128 + signal.SIGKILL
STOPPED_IN_SETUP = "The attempt was stopped before its environment was made."
STOPPED_WAITING = "The attempt was stopped before all servers of its gang were ready."
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
    node: str
    mounts: dict[str, str]
    """Storage → its path."""
    links: bool
    """Whether `mounts/<storage>` is made in the working folder."""
    setup: "SetupFile | None"
    """Command that makes the job's environment before it starts."""
    limits: "NotRequired[RankLimits]"
    container: "NotRequired[ContainerFile | None]"
    user: list[int] | None
    """User id, group id and further groups to switch to; None keeps those of the service."""
    report: int | None
    """Descriptor to which the `RankExit` is written; None: it is written to `outcome_file`."""
    outcome_file: str
    heartbeat_file: str
    """File that is written every few seconds while the rank lives; empty: none."""
    inherit: list[str]
    """Variables of the surroundings that the job gets, such as the devices that the site chose."""
    masked: "NotRequired[list[str]]"
    """Texts that are masked in the log of the setup."""
    memory_file: NotRequired[str]
    """File for the most memory that the rank has held, in MiB."""
    ready_file: NotRequired[str]
    """File that is made once the rank is prepared: it then waits for the word `go`. Empty: it does not wait."""


class RankExit(TypedDict):
    exit_code: int
    message: str
    missing_storage: NotRequired[str]
    """The storage for which the command was not started."""
    node_failed: NotRequired[bool]
    """Whether the node could not start the command: not the job's failure."""


class NoContainer(Exception):
    """The rank's container cannot be started; the message is for the owner."""


class StorageMissing(Exception):
    """A storage is not there, or may not be read."""

    def __init__(self, name: str, words: str) -> None:
        super().__init__(words)
        self.name = name


def main() -> None:
    commands = _Lines(sys.stdin.fileno())
    plan: RankStart = json.loads(commands.wait_for_line())
    if plan["report"] is not None:
        os.set_inheritable(plan["report"], False)
    plan["env"] |= {name: os.environ[name] for name in plan["inherit"] if name in os.environ}
    become_subreaper()
    outcome = _run(plan, commands)
    if os.getpid() != 1:  # the exit of process 1 does this atomically
        _kill_descendants()
    _tell(outcome, plan)


def _tell(outcome: RankExit, plan: RankStart) -> None:
    text = json.dumps(outcome).encode()
    if plan["report"] is not None:
        os.write(plan["report"], text)
        return
    beside = f"{plan['outcome_file']}.partial"
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    os.write(descriptor, text)
    os.fsync(descriptor)
    os.close(descriptor)
    os.replace(beside, plan["outcome_file"])  # noqa: PTH105 - pathlib costs this process a third of its start


def _run(plan: RankStart, commands: "_Lines") -> RankExit:
    child_ended = _wake_on_child()
    heartbeat, memory = _Heartbeat(plan["heartbeat_file"]), MemoryLimit.of(plan.get("limits"), plan["node"])
    if (cgroup := _cgroup_of(plan.get("limits"))) and not may_join(cgroup):
        return RankExit(exit_code=NO_CGROUP, message=f"The cgroup {cgroup} is gone.", node_failed=True)
    began_s = time.monotonic()
    if plan["setup"] is not None and (failure := _set_up(plan, plan["setup"], commands, child_ended, heartbeat)):
        return failure
    _write_time(plan["setup"], time.monotonic() - began_s)
    if plan.get("ready_file") and (failure := _wait_for_others(plan, commands, heartbeat)):
        return failure
    job, missing, complaint = _start(plan)
    use = MemoryUse(plan.get("memory_file", ""), cgroup)
    exit_code = _follow(job, commands, child_ended, heartbeat, (memory, use))
    memory.look_once_more()
    if exit_code == NOT_STARTED and plan.get("container"):
        complaint = complaint or NOT_STARTED_ADVICE
    return _exit(KILLED if memory.exceeded else exit_code, complaint or memory.exceeded, missing)


def _exit(exit_code: int, message: str, missing_storage: str) -> RankExit:
    outcome = RankExit(exit_code=exit_code, message=message)
    if missing_storage:
        outcome["missing_storage"] = missing_storage
    return outcome


def _set_up(
    plan: RankStart, setup: "SetupFile", commands: "_Lines", child_ended: int, heartbeat: "_Heartbeat"
) -> RankExit | None:
    """Make the job's environment unless it exists; an exit if that failed or the rank was told to stop."""
    from engines.supervision.environment_setup import Entry, Environment  # noqa: PLC0415 - as above

    environment = Environment(setup["folder"])
    while (entry := environment.enter()) is Entry.BUSY:
        if commands.read():
            return RankExit(exit_code=STOPPED, message=STOPPED_IN_SETUP)
        heartbeat.beat()
        time.sleep(GROUP_POLL_S)
    if entry is Entry.READY:
        with open(setup["log"], "ab", buffering=0) as log:  # noqa: PTH123 - pathlib is slow to import
            log.write(f"The environment exists: it was made by {environment.made_by()}.\n".encode())
        return None
    environment.clear(plan["user"])
    for removal in environment.removals():
        _follow(removal, commands, child_ended, heartbeat)
        if commands.told:
            return RankExit(exit_code=STOPPED, message=STOPPED_IN_SETUP)
    failure = _run_setup(plan, setup, commands, child_ended, heartbeat)
    if failure is None:
        environment.finish(setup["made_by"])
    return failure


def _write_time(setup: "SetupFile | None", seconds: float) -> None:
    """Write until when the rank had its environment; a full disk costs only this."""
    if setup is not None and (path := setup.get("time_file")):
        with suppress(OSError), open(path, "w") as file:  # noqa: PTH123 - pathlib is slow to import
            file.write(f"{seconds:.3f}")


def _run_setup(
    plan: RankStart, setup: "SetupFile", commands: "_Lines", child_ended: int, heartbeat: "_Heartbeat"
) -> RankExit | None:
    """Run the setup, and leave no process of it behind; its output goes through a pipe, so that its log is limited."""
    from engines.supervision.environment_setup import copy_output  # noqa: PLC0415 - as above

    reading, writing = os.pipe()
    child, missing, complaint = _start({**plan, "argv": ["/bin/sh", "-c", setup["command"]]}, output=writing)
    os.close(writing)
    copying = copy_output(reading, setup, plan.get("masked", []))
    exit_code = _follow(child, commands, child_ended, heartbeat)
    _kill_descendants()
    copying.join(LAST_OUTPUT_S)
    if exit_code == 0 and not commands.told:
        return None
    memory = MemoryLimit.of(plan.get("limits"), plan["node"])
    memory.look_once_more()
    text = STOPPED_IN_SETUP if commands.told else f"The setup failed with exit code {exit_code}: see its log."
    text = f"{text} {memory.exceeded}".rstrip()
    return _exit(exit_code or STOPPED, complaint or text, missing)


def _wait_for_others(plan: RankStart, commands: "_Lines", heartbeat: "_Heartbeat") -> RankExit | None:
    """Look for the storage, say that the rank is ready, and wait for `go`; an exit if it was told to stop instead."""
    try:
        with acting_as(plan["user"]):
            for name, path in plan["mounts"].items():
                _refuse_missing(name, path, plan["node"])
    except StorageMissing as error:
        return _exit(126, str(error), error.name)
    with open(plan.get("ready_file", ""), "w"):  # noqa: PTH123 - pathlib is slow to import
        pass
    while not (words := commands.read()):
        heartbeat.beat()
        select.select([commands.descriptor], [], [], heartbeat.interval_s)
    return None if words == ["go"] else RankExit(exit_code=STOPPED, message=STOPPED_WAITING)


class _Heartbeat:
    """Counter in a file, written anew every few seconds: its change, not its time, says that this process lives."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._count = 0

    @property
    def interval_s(self) -> float | None:
        return HEARTBEAT_S if self._path else None

    def beat(self) -> None:
        if self._path:
            self._count += 1
            with suppress(OSError), open(self._path, "w") as file:  # noqa: PTH123 - as above; a full disk costs a beat
                file.write(str(self._count))


def _follow(
    job: int,
    commands: "_Lines",
    child_ended: int,
    heartbeat: "_Heartbeat",
    watches: "Sequence[MemoryLimit | MemoryUse]" = (),
) -> int:
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
            heartbeat.beat()
            for watch in watches:
                watch.look()
            selector.select(GROUP_POLL_S if exit_code is not None else _pause(heartbeat, *watches))
            _drain(child_ended)  # before reaping: a child that ends in between wakes the next round
            exit_code = reap().get(job, exit_code)
    return exit_code


def _pause(heartbeat: "_Heartbeat", *watches: MemoryLimit | MemoryUse) -> float | None:
    """Longest wait for an event; None: for ever."""
    intervals = (heartbeat.interval_s, *(watch.interval_s for watch in watches))
    return min((seconds for seconds in intervals if seconds is not None), default=None)


class _Lines:
    """Lines from a pipe, non-blocking after the first; end of file reads as `kill`."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.told = False
        """Whether a command has been read."""
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
        words = [line.decode() for line in lines] + (["kill"] if ended else [])
        self.told = self.told or bool(words)
        return words

    def _read_chunk(self) -> tuple[bytes, bool]:
        """New bytes, and whether this is the end of file."""
        try:
            chunk = os.read(self.descriptor, 65536)
        except BlockingIOError:
            return b"", False
        return chunk, not chunk


def _start(plan: RankStart, *, output: int | None = None) -> tuple[int, str, str]:
    """Fork the job as leader of a new process group; `output` takes both of its streams, if it is given.

    Return its process id, the storage that is missing, and why it could not be executed.
    """
    complaint, complain = os.pipe()
    job = os.fork()
    if job == 0:
        for stream in (1, 2) if output is not None else ():
            os.dup2(output or 0, stream)
        _become(plan, complain)
    os.close(complain)
    with os.fdopen(complaint, errors="replace") as told:
        missing, _, words = told.read().rpartition("\0")  # ends when the command is executed: it is close-on-exec
        return job, missing, words


def _become(plan: RankStart, complain: int) -> NoReturn:
    try:
        _prepare(plan)
        argv, env = _contained(plan, plan["container"]) if plan.get("container") else (plan["argv"], plan["env"])
        os.execvpe(argv[0], argv, env)  # noqa: S606 - a list is executed as it is
    except StorageMissing as error:
        os.write(complain, f"{error.name}\0{error}".encode(errors="replace")[:4096])
        os._exit(126)
    except NoContainer as error:
        os.write(complain, str(error).encode(errors="replace")[:4096])
        os._exit(NOT_STARTED)
    except (OSError, ValueError) as error:
        os.write(complain, _advice(error, plan).encode(errors="replace")[:4096])
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        os._exit(127 if missing else 126)


def _prepare(plan: RankStart) -> None:
    os.setsid()
    _limit(plan.get("limits"))
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
    stays_root = _by_podman(plan)  # which then gives the job its user
    if not stays_root:
        switch_to(plan["user"])
        forbid_new_privileges()
    die_with_parent(signal.SIGKILL)  # after setuid, which clears it
    with acting_as(plan["user"] if stays_root else None):  # so that the job's user needs the permission
        for name, path in plan["mounts"].items():
            _refuse_missing(name, path, plan["node"])
        os.chdir(plan["workdir"])
        if plan["links"]:
            _link(plan["mounts"], plan["node"])
    signal.set_wakeup_fd(-1)
    for number in USUAL:  # Python ignores some of them, and the parent of the service may ignore others
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _by_podman(plan: RankStart) -> bool:
    container = plan.get("container")
    return container is not None and container["runtime"] == "podman"


def _contained(plan: RankStart, container: "ContainerFile | None") -> tuple[list[str], dict[str, str]]:
    """Command line and environment of the container runtime that starts the rank."""
    from engines.supervision import container as containers  # noqa: PLC0415 - as above

    assert container is not None  # noqa: S101 - for mypy
    named = [*([] if plan["links"] else [plan["workdir"]]), *plan["mounts"].values()]
    devices = plan["env"].get("CUDA_VISIBLE_DEVICES", "")
    if complaint := containers.unmountable(named):
        raise NoContainer(complaint)
    if container["runtime"] != containers.PODMAN:
        argv = containers.apptainer_command(
            container, plan["argv"], workdir=plan["workdir"], named=named, devices=devices
        )
        return argv, plan["env"]
    if complaint := containers.prepare(container, plan["env"], plan["user"], named):
        raise NoContainer(complaint)
    argv = containers.podman_command(
        container,
        plan["argv"],
        user=plan["user"],
        workdir=plan["workdir"],
        named=named,
        devices=devices,
    )
    return argv, containers.podman_environment() | {MARK: plan["env"][MARK]}


def _cgroup_of(limits: "RankLimits | None") -> str:
    cgroup = limits.get("cgroup") if limits else None
    return cgroup["path"] if cgroup else ""


def _limit(limits: "RankLimits | None") -> None:
    """Join the rank's cgroup, set the job's OOM score, and RLIMIT_NPROC for its account."""
    if cgroup := _cgroup_of(limits):
        join(cgroup)
    with suppress(OSError, ValueError), open("/proc/self/oom_score_adj", "r+") as score:  # noqa: PTH123 - as above
        ours = int(score.read())
        score.seek(0)
        score.write(str(max(ours, OOM_SCORE)))
    if limits and limits["processes"]:
        _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        most = limits["processes"] if hard == resource.RLIM_INFINITY else min(limits["processes"], hard)
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def _refuse_missing(name: str, path: str, node: str) -> None:
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - pathlib costs this process a third of its start
    except OSError as error:
        raise StorageMissing(name, f"The storage {name} is missing on {node}: {path}: {error.strerror}.") from None
    if not os.access(path, os.R_OK | (os.X_OK if stat.S_ISDIR(mode) else 0), effective_ids=True):
        raise StorageMissing(name, f"The storage {name} on {node}: the account of jobs may not read {path}.")


def _link(mounts: dict[str, str], node: str) -> None:
    """Make `mounts/<storage>` in the working folder; of the ranks that share it, any may be the last."""
    for name, path in mounts.items():
        beside = f"mounts/.{name}.{node}"
        with suppress(OSError):  # a folder that the job itself made there stays; the variable has the path in any case
            os.makedirs("mounts", exist_ok=True)  # noqa: PTH103 - as above
            with suppress(FileNotFoundError):
                os.unlink(beside)  # noqa: PTH108 - as above
            os.symlink(path, beside)  # noqa: PTH211 - as above
            os.replace(beside, f"mounts/{name}")  # noqa: PTH105 - as above


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
        time.sleep(KILL_POLL_S)
        reap()


if __name__ == "__main__":
    main()
