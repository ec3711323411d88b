"""The container of a rank: the command line of Podman or Apptainer, by which its init process starts the job.

Podman runs as root and gives the job its account; Apptainer runs as that account. All state of Podman is in a folder of
the rank, images of the machine beside it are read only: nothing is left in Podman's own lists, whoever is killed.
"""

import os
import resource
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engines.linux import acting_as, bind_mount, unmount

if TYPE_CHECKING:  # few jobs have a container, and all wait for the start of the init process
    from engines.attempt_files import ContainerFile

PODMAN, APPTAINER = "podman", "apptainer"
INIT = "/run/motley-init"
STATE = Path("/run/motley-container")
"""Where a rank's folder of state is mounted, in its mount namespace: Podman's own paths must be short."""
HYBRID = "/sys/fs/cgroup/unified"
CONFIGURATION = """[engine]
lock_type = "file"
"""
"""Locks in memory would stay taken in the machine's own list when all is killed."""
OWN_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


def unmountable(named: Sequence[str]) -> str:
    """Fault of the folders that a job names: a runtime would read text after a colon as options.

    Podman, which is root, gives a folder with the option U to the job's account.
    """
    found = next((path for path in named if ":" in path), None)
    return f"In a container a folder's path has no colon: {found}" if found else ""


def prepare(container: "ContainerFile", env: Mapping[str, str], user: list[int] | None, named: Sequence[str]) -> str:
    """Mount the folders that the job names, with its account's rights, and fetch the image. Returns the fault.

    A folder is opened as the account and mounted by its descriptor: a link that is changed meanwhile leads nowhere. The
    mounts are in the mount namespace of the rank and end with it.
    """
    state = Path(container["folder"])
    for path in (state, STATE):
        path.mkdir(mode=0o700, exist_ok=True)
    bind_mount(str(state), str(STATE))
    for name in ("run", "tmp", "named"):
        (STATE / name).mkdir(exist_ok=True)
    with acting_as(user):
        opened = [os.open(path, os.O_PATH | os.O_CLOEXEC) for path in named]
    for number, descriptor in enumerate(opened):
        target = _mounted_at(number)
        target.mkdir(exist_ok=True) if os.path.isdir(f"/proc/self/fd/{descriptor}") else target.touch()  # noqa: PTH112
        bind_mount(f"/proc/self/fd/{descriptor}", str(target))
        os.close(descriptor)
    if os.path.ismount(HYBRID):
        unmount(HYBRID)
    (STATE / "containers.conf").write_text(CONFIGURATION)
    if several := [name for name, value in env.items() if "\n" in value]:
        return f"In a container a variable has one line: {', '.join(several)} has several."
    _write_environment(STATE / "env", env)
    return _fetch(container) if container["fetch"] and not (STATE / "image").exists() else ""


def _mounted_at(number: int) -> Path:
    return STATE / "named" / str(number)


def podman_command(
    container: "ContainerFile",
    argv: Sequence[str],
    *,
    user: list[int] | None,
    workdir: str,
    named: Sequence[str],
    devices: str,
) -> list[str]:
    """Command line of a rank by Podman. Neither the image nor anything else reaches a shell."""
    uid, gid, *groups = user or [os.geteuid(), os.getegid()]
    volumes = [f"{path}:{path}" for path in container["folders"]]
    volumes += [f"{path}:{path}:ro" for path in container["read_only"]]
    volumes += [f"{_mounted_at(number)}:{path}" for number, path in enumerate(named)]
    gpus = [f"nvidia.com/gpu={name}" for name in devices.split(",") if name.startswith("GPU-")]
    return [
        *_podman(container),
        *("run", "--rm", "--pull=never", f"--pidfile={STATE / 'pid'}", "--cgroups=disabled"),
        *("--network=host", "--ipc=host", "--uts=host", "--http-proxy=false"),
        *("--security-opt=no-new-privileges", "--cap-drop=all", "--oom-score-adj=500"),
        *(f"--user={uid}:{gid}", *(f"--group-add={group}" for group in groups)),
        *(f"--ulimit={limit}" for limit in _limits()),
        *(f"--env-file={STATE / 'env'}", f"--workdir={workdir}", "--entrypoint="),
        *(f"--volume={volume}" for volume in [*volumes, f"{container['init']}:{INIT}:ro"]),
        *(f"--device={gpu}" for gpu in gpus),
        *(_fetched(container), INIT, "-g", "--", *argv),
    ]


def _limits() -> list[str]:
    """Present limits of this process, because Podman would raise limits that are not given."""
    here = {"nofile": resource.getrlimit(resource.RLIMIT_NOFILE), "nproc": resource.getrlimit(resource.RLIMIT_NPROC)}
    return [f"{name}={soft}:{hard}" for name, (soft, hard) in here.items()]


def podman_environment() -> dict[str, str]:
    """Environment of Podman itself: it is root, and none of the job's variables may reach it."""
    paths = {"HOME": "", "TMPDIR": "tmp", "CONTAINERS_CONF": "containers.conf"}
    return OWN_ENVIRONMENT | {name: str(STATE / path) for name, path in paths.items()}


def apptainer_command(
    container: "ContainerFile", argv: Sequence[str], *, workdir: str, named: Sequence[str], devices: str
) -> list[str]:
    """Command line of a rank by Apptainer, which keeps the account, the environment and the network."""
    binds = [*container["folders"], *(f"{path}:{path}:ro" for path in container["read_only"]), *named]
    nvidia = ["--nv"] if "GPU-" in devices else []
    image = container["image"].removeprefix("sif:")
    return [
        *(APPTAINER, "exec", *nvidia, "--no-home", f"--pwd={workdir}"),
        *(f"--bind={bind}" for bind in binds),
        *(image if image.startswith("/") or ":/" in image else f"docker://{image}", *argv),
    ]


def remove_state(folder: str) -> None:
    """Remove what Podman has written for a rank; nothing while something is mounted there."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    if not any(line.split()[4].startswith(folder) for line in mounts):
        shutil.rmtree(folder, ignore_errors=True)


def _podman(container: "ContainerFile") -> list[str]:
    driver = container["driver"]
    return [
        *(PODMAN, "--root", str(STATE / "graph"), "--runroot", str(STATE / "run"), "--tmpdir", str(STATE / "tmp")),
        *("--storage-driver", driver, "--storage-opt", f"{driver}.imagestore={container['store']}"),
        *("--cgroup-manager=cgroupfs", "--events-backend=none", "--runtime=crun", "--log-level=error"),
    ]


def _write_environment(path: Path, env: Mapping[str, str]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.writelines(f"{name}={value}\n" for name, value in env.items())


def _fetch(container: "ContainerFile") -> str:
    """Fetch the image: an archive into the rank's folder, one of a registry into the machine's store.

    Returns what went wrong.
    """
    is_archive = ":/" in container["image"]
    program = _podman(container) if is_archive else [PODMAN]
    known = [*program, "image", "exists", container["image"]]
    if not is_archive and _run(known).returncode == 0:
        return ""
    done = _run([*program, "pull", "--quiet", container["image"]])
    if done.returncode:
        return f"The image {container['image']} could not be fetched: {done.stderr.strip()[-500:]}"
    (STATE / "image").write_text(done.stdout.split()[-1])
    return ""


def _fetched(container: "ContainerFile") -> str:
    """The image by its number if it was fetched from an archive, which may have no name."""
    try:
        return (STATE / "image").read_text()
    except FileNotFoundError:
        return container["image"]


def _run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    env = podman_environment()
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)  # noqa: S603 - a list
