"""Enter the namespaces of a rank on its node: `python -ES -m engines.sessions.enter <folder of the attempt> <rank>`.

With `-` in place of the rank it comes first on standard input, as four bytes.

The namespaces are those of the rank's init process, which is ours. Any process of the job might have made others, in
which a mount that it chose, or its idea of root, would be ours.
"""

import encodings.idna  # noqa: F401 - of connections; in a container it could not be found any more
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from engines.attempt_files import AttemptFolder, LaunchFile, RankCommand
from engines.linux import enter_namespace
from engines.sessions.frames import Frames, Kind
from engines.sessions.session import SessionPlan, serve
from engines.supervision.cgroup import join
from engines.supervision.container import STATE
from engines.supervision.processes import environment_of, marked, shell_code, user_ids
from engines.supervision.rank import RANK, SITE_VARIABLES
from engines.supervision.session_socket import RANK_BYTES, RANK_FROM_INPUT

NOT_THERE = 255
INIT_PROGRAM = b"engines.supervision.init_process"
INIT_WORDS = 5
"""python -ES -m and the program, each with a NUL at its end."""


class InitProcess(NamedTuple):
    """The init process of a rank, and how many PID namespaces below ours it is."""

    pid: int
    environment: dict[str, str]
    depth: int


def main() -> None:
    folder, rank = AttemptFolder(Path(sys.argv[1])), rank_of(sys.argv[2])
    launch = folder.read_launch()
    found = init_process_of(launch["mark"], rank) if launch is not None else None
    if launch is None or found is None:
        refuse("No process of the job runs there: it has not started, or has ended.")
        return
    namespaces = open_namespaces(found) if found.depth else []
    if init_process_of(launch["mark"], rank) != found:  # its number was given to another process meanwhile
        refuse("The job has just ended.")
        return
    for descriptor in namespaces:
        enter_namespace(descriptor)
    plan, command = plan_of(launch, rank, found), launch["ranks"][rank]
    _join_cgroup(command)
    has_container = command.get("container") is not None and os.geteuid() == 0
    os._exit(_in_child(lambda: _serve_in_container(plan) if has_container else serve(plan)))


def rank_of(word: str) -> int:
    if word == RANK_FROM_INPUT:
        return int.from_bytes(sys.stdin.buffer.read(RANK_BYTES), "big")
    return int(word)


def init_process_of(mark: str, rank: int) -> InitProcess | None:
    """The rank's init process, which runs as we do: a job that runs as another user cannot make such a process."""
    for pid in sorted(marked(mark)):
        environment = environment_of(pid)
        if environment.get(RANK) == str(rank) and user_ids(pid) == {os.geteuid()} and _is_init_process(pid):
            return InitProcess(pid, environment, len(_numbers_by_namespace(pid)) - 1)
    return None


def open_namespaces(process: InitProcess) -> list[int]:
    """Descriptors of the namespaces in which it is and we are not; the user namespace, if any, first.

    Ours never differs where we are root: its root, not the job's, is who we must stay until we drop to the job's user.
    """
    names = ("pid", "mnt") if os.geteuid() == 0 else ("user", "pid", "mnt")
    there = {name: f"/proc/{process.pid}/ns/{name}" for name in names}
    differ = [path for name, path in there.items() if Path(path).readlink() != Path(f"/proc/self/ns/{name}").readlink()]
    return [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in differ]


def plan_of(launch: LaunchFile, rank: int, process: InitProcess) -> SessionPlan:
    """Environment, folder and user with which the job was started, whatever it has changed since."""
    command = launch["ranks"][rank]
    of_the_site = {name: process.environment[name] for name in SITE_VARIABLES if name in process.environment}
    return SessionPlan(env=command["env"] | of_the_site, workdir=command["workdir"], user=launch["user"])


def refuse(why: str) -> None:
    frames = Frames(sys.stdin.buffer, sys.stdout.buffer)
    frames.send(Kind.ERROR, f"{why}\n".encode())
    frames.send(Kind.EXIT, str(NOT_THERE).encode())


def _join_cgroup(command: RankCommand) -> None:
    """The limits of the rank hold for its sessions, too."""
    cgroup = command["limits"].get("cgroup") if "limits" in command else None
    if cgroup is not None:
        try:
            join(cgroup["path"])
        except PermissionError:
            if os.geteuid() == 0:
                raise  # a service that is not root may move no process from one unit of systemd to another


def _in_child(act: Callable[[], None]) -> int:
    """Serve the session in a child, which is in the PID namespace; we reap it, or its namespace could not end."""
    child = os.fork()
    if child == 0:
        code = NOT_THERE
        with suppress(Exception):
            act()
            code = 0
        os._exit(code)
    return shell_code(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _serve_in_container(plan: SessionPlan) -> None:
    """Serve the session in the rank's container: in the namespaces of its process 1, which no process of the job is."""
    pid = int((STATE / "pid").read_text())
    own_path = {"PATH": environment_of(pid).get("PATH", "")}
    descriptors = [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in ("pid", "mnt")]
    if _numbers_by_namespace(pid) != [pid, 1]:  # it has ended, and its number was given to another process
        refuse("The container has just ended, or has not started yet.")
        return
    for descriptor in descriptors:
        enter_namespace(descriptor)
    _in_child(lambda: serve(SessionPlan(**{**plan, "env": own_path | plan["env"]})))


def _is_init_process(pid: int) -> bool:
    """Whether it runs our program, and is not the unshare or srun that starts it."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return len(words) == INIT_WORDS and words[-2] == INIT_PROGRAM


def _numbers_by_namespace(pid: int) -> list[int]:
    """Process ids of a process, in our PID namespace and in each below it; empty if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return []
    return [int(word) for line in lines if line.startswith("NSpid:") for word in line.split()[1:]]


if __name__ == "__main__":
    main()
