"""Engine of one machine: each attempt runs under its own supervisor process, which outlives the service."""

import os
import pwd
import secrets
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from uuid import UUID

from engines.attempt_files import AttemptFolder, ExitFile, LaunchFile, RankCommand, StopFile, read_json, write_json
from engines.linux import lock
from engines.local.host_setup import reachable_by
from engines.local.isolation import Isolation, best_isolation
from engines.local.processes import MARK, any_process_is_exiting, kill, marked
from engines.local.rank import PACKAGE_PARENT, PYTHON
from engines.nvml import device_is_free, this_machine
from engines.progress import progress_from_json
from engines.protocol import (
    AttemptReport,
    EngineError,
    Launch,
    LogChunk,
    NodeReport,
    Phase,
    Progress,
    StopReason,
    Stream,
)

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
THROUGH = 0o711
"""Mode of a folder that others may traverse, but not list."""
OWN = 0o700


class LocalEngine:
    """Runs attempts on this machine; its whole state is in files below `root`, so that any instance can continue.

    `declared` names emulated nodes beside the GPUs that NVML finds. As root, jobs run as `job_user`.
    `path_prefix` is put before the PATH of jobs.
    """

    def __init__(
        self,
        root: Path,
        *,
        declared: Sequence[str] = (),
        job_user: str | None = None,
        path_prefix: str = "",
        isolation: Isolation | None = None,
    ) -> None:
        self._root = root.resolve()
        self._declared = tuple(declared)
        self._user = _find_user(job_user) if job_user is not None and os.geteuid() == 0 else None
        self._path = f"{path_prefix}:{SYSTEM_PATH}" if path_prefix else SYSTEM_PATH
        self._asked_isolation = isolation
        self._make_root()

    def nodes(self) -> list[NodeReport]:
        found = this_machine()
        declared = [NodeReport(name) for name in self._declared if found is None or name != found.name]
        return declared + ([found] if found is not None else [])

    def launch(self, launch: Launch) -> None:
        """Start the attempt once: under its lock, which the supervisor inherits."""
        folder = self._folder(launch.attempt)
        with _explained(folder.path):
            _make_folder(folder.path, THROUGH)
            with _held(folder.lock) as descriptor:
                if descriptor is not None and not folder.started.exists() and not folder.exit.exists():
                    write_json(folder.launch, self._prepare(launch, folder))
                    _start_supervisor(folder, descriptor)

    def stop(self, attempt: int, *, reason: StopReason, grace: timedelta) -> None:
        """Write the stop request; the supervisor reads it, or a launch that is still to come."""
        folder = self._folder(attempt)
        with _explained(folder.path):
            _make_folder(folder.path, THROUGH)
            write_json(folder.stop, StopFile(reason=reason, grace_s=max(grace.total_seconds(), 0)))

    def poll(self, attempts: Iterable[int]) -> list[AttemptReport]:
        return [_report(attempt, self._folder(attempt)) for attempt in attempts]

    def logs(self, attempt: int, stream: Stream, rank: int, offset: int, limit: int = 65536) -> LogChunk:
        folder = self._folder(attempt)
        over = folder.exit.exists() or (folder.started.exists() and not folder.is_supervised())
        try:
            with folder.log(stream, int(rank)).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(min(offset, size))
                data = file.read(limit)
        except FileNotFoundError:
            size, data = 0, b""
        after = offset + len(data)
        return LogChunk(data, offset=offset, next_offset=after, size=size, eof=over and after >= size)

    @cached_property
    def _isolation(self) -> Isolation:
        return self._asked_isolation or best_isolation()

    def _make_root(self) -> None:
        try:
            self._root.mkdir(mode=THROUGH, parents=True, exist_ok=True)
            for name in ("attempts", "jobs"):
                _make_folder(self._root / name, THROUGH)
        except OSError as error:
            raise EngineError(
                f"The folder {self._root} could not be created ({error.strerror}): choose another."
            ) from error
        if self._user is not None and not reachable_by(self._root, self._user.pw_name):
            raise EngineError(
                f"The user {self._user.pw_name} cannot reach {self._root}: choose a folder outside private ones, "
                "such as /var/lib/motley."
            )

    def _folder(self, attempt: int) -> AttemptFolder:
        return AttemptFolder(self._root / "attempts" / str(int(attempt)))

    def _prepare(self, launch: Launch, folder: AttemptFolder) -> LaunchFile:
        """Create the job's folders and the input of its supervisor."""
        job = self._root / "jobs" / _uuid(launch.job)
        _make_folder(job, THROUGH)
        work, checkpoints = (self._make_own(job / name) for name in ("work", "checkpoints"))
        self._make_own(folder.job_writable)
        mark = secrets.token_hex(16)
        added = {"MOTLEY_CHECKPOINT_DIR": str(checkpoints), "MOTLEY_STOP_REASON_FILE": str(folder.stop_reason)}
        return LaunchFile(
            ranks=[
                self._rank_command(
                    launch, rank, workdir=launch.workdir or work, added=added | _rank_env(folder, rank, mark)
                )
                for rank in range(len(launch.tasks))
            ],
            user=[self._user.pw_uid, self._user.pw_gid] if self._user is not None else None,
            isolation=self._isolation,
            mark=mark,
            log_limit_bytes=launch.log_limit_bytes,
        )

    def _rank_command(self, launch: Launch, rank: int, *, workdir: Path, added: dict[str, str]) -> RankCommand:
        if not workdir.is_absolute():
            raise EngineError(f"The working folder {workdir} is not an absolute path: it must start with /.")
        name = self._user.pw_name if self._user is not None else pwd.getpwuid(os.geteuid()).pw_name
        least = {"PATH": self._path, "HOME": str(workdir), "LANG": "C.UTF-8", "USER": name, "LOGNAME": name}
        shell = isinstance(launch.command, str)
        return RankCommand(
            argv=["/bin/sh", "-c", str(launch.command)] if shell else list(launch.command),
            env={**least, **launch.env, **launch.tasks[rank].env, "PWD": str(workdir), **added},
            workdir=str(workdir),
        )

    def _make_own(self, path: Path) -> Path:
        """Create a folder that belongs to the job's user."""
        _make_folder(path, OWN)
        if self._user is not None:
            os.chown(path, self._user.pw_uid, self._user.pw_gid, follow_symlinks=False)
        return path


def _make_folder(path: Path, mode: int) -> None:
    path.mkdir(exist_ok=True)
    path.chmod(mode)  # independent of the umask


def _find_user(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise EngineError(f"There is no user {name} on this machine: create it, or configure another.") from None


def _uuid(job: str) -> str:
    try:
        return str(UUID(job))
    except ValueError:
        raise EngineError(f"The job id {job!r} is not a UUID.") from None


def _rank_env(folder: AttemptFolder, rank: int, mark: str) -> dict[str, str]:
    return {"MOTLEY_PROGRESS": str(folder.progress_lines(rank)), MARK: mark}


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, subprocess.CalledProcessError) as error:
        raise EngineError(
            f"Writing {path} or starting its supervisor failed ({error}): check that the disk is not full, that the "
            "service may write there, and that util-linux is installed."
        ) from error


@contextmanager
def _held(path: Path) -> Iterator[int | None]:
    """Descriptor of the lock if we could take it, else None; a child that inherits it continues to hold the lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor if lock(descriptor) else None
    finally:
        os.close(descriptor)


def _start_supervisor(folder: AttemptFolder, descriptor: int) -> None:
    """Start the supervisor in a new session and double-forked, so that it outlives us and leaves no zombie."""
    with folder.supervisor_log.open("ab") as log:
        subprocess.run(  # noqa: S603 - our own program, with a path and a number
            ["setsid", "--fork", *PYTHON, "engines.local.supervisor", str(folder.path), str(descriptor)],  # noqa: S607
            cwd=PACKAGE_PARENT,
            env={"PATH": SYSTEM_PATH, "LANG": "C.UTF-8"},  # not our own environment, which holds secrets
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(descriptor,),
            check=True,
        )


def _report(attempt: int, folder: AttemptFolder) -> AttemptReport:
    """Read the files in the reverse order of writing: started and no longer supervised then means lost."""
    started = folder.read_started()
    supervised = folder.is_supervised()
    if (ended := folder.read_exit()) is not None:
        return _ended(attempt, folder, ended)
    if started is None:
        return _not_started(attempt, folder, supervised=supervised)
    began = datetime.fromisoformat(started["at"])
    progress, invalid_lines = _progress(folder)
    report = AttemptReport(attempt, Phase.RUNNING, started_at=began, progress=progress, invalid_lines=invalid_lines)
    return report if supervised else _lost(report, folder)


def _not_started(attempt: int, folder: AttemptFolder, *, supervised: bool) -> AttemptReport:
    if supervised:
        return AttemptReport(attempt, Phase.LAUNCHING)
    if folder.started.exists():  # started since it was read
        return _report(attempt, folder)
    return AttemptReport(attempt, Phase.UNKNOWN, proven_gone=True)


def _ended(attempt: int, folder: AttemptFolder, ended: ExitFile) -> AttemptReport:
    progress, invalid_lines = _progress(folder)
    return AttemptReport(
        attempt,
        Phase.ENDED,
        proven_gone=_devices_are_free(folder),
        exit_code=ended["exit_code"],
        started_at=datetime.fromisoformat(ended["started_at"]) if ended["started_at"] else None,
        ended_at=datetime.fromisoformat(ended["ended_at"]),
        progress=progress,
        invalid_lines=invalid_lines,
        message=ended["message"],
    )


def _lost(report: AttemptReport, folder: AttemptFolder) -> AttemptReport:
    """Its supervisor was killed: kill the remaining processes of the job; gone once none is left."""
    launch = folder.read_launch()
    left = marked(launch["mark"]) if launch is not None else []
    dying = any_process_is_exiting()  # after `marked`: an exiting process that has lost its mark is seen here
    kill(left)
    message = (
        "The supervisor of this attempt was killed, and the job with it: see the log of the machine for the cause."
    )
    gone = not left and not dying and _devices_are_free(folder)
    return replace(report, phase=Phase.LOST, proven_gone=gone, message=message)


def _devices_are_free(folder: AttemptFolder) -> bool:
    """Whether the driver lists no process on the attempt's GPUs either; emulated GPUs have no driver."""
    launch = folder.read_launch()
    had = [plan["env"].get("CUDA_VISIBLE_DEVICES", "") for plan in launch["ranks"]] if launch is not None else []
    return all(device_is_free(uuid) for names in had for uuid in names.split(",") if uuid.startswith("GPU-"))


def _progress(folder: AttemptFolder) -> tuple[Progress | None, int]:
    content = read_json(folder.progress)
    return progress_from_json(content) if content is not None else (None, 0)
