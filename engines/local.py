"""The engine of one machine: each attempt under a supervisor of its own, which outlives the service."""

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

from engines.folder import AttemptFolder, ExitFile, LaunchFile, RankPlan, StopFile, read_json, write_json
from engines.host import reachable_by
from engines.isolation import Isolation, best_isolation
from engines.kernel import lock
from engines.nvml import device_is_free, this_machine
from engines.processes import MARK, kill, marked, someone_is_dying
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
from engines.rank import PACKAGE_PARENT, PYTHON

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
THROUGH = 0o711
"""Others may pass through such a folder to one that is theirs, and see nothing on the way."""
OWN = 0o700


class LocalEngine:
    """Runs attempts on this machine; all it knows is in files below `root`, so that any instance may go on with them.

    `declared` names the nodes that this machine plays beside what NVML finds. As root, jobs run as `job_user`.
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
        """Start the attempt, once: whoever holds its lock starts it, and the lock passes to the supervisor."""
        folder = self._folder(launch.attempt)
        with _explained(folder.path):
            _make_folder(folder.path, THROUGH)
            with _held(folder.lock) as descriptor:
                if descriptor is not None and not folder.started.exists() and not folder.exit.exists():
                    write_json(folder.launch, self._prepare(launch, folder))
                    _start_supervisor(folder, descriptor)

    def stop(self, attempt: int, *, reason: StopReason, grace: timedelta) -> None:
        """Leave the request where the supervisor finds it, or a launch that is still on its way."""
        folder = self._folder(attempt)
        with _explained(folder.path):
            _make_folder(folder.path, THROUGH)
            write_json(folder.stop, StopFile(reason=reason, grace_s=max(grace.total_seconds(), 0)))

    def poll(self, attempts: Iterable[int]) -> list[AttemptReport]:
        return [_report(attempt, self._folder(attempt)) for attempt in attempts]

    def logs(self, attempt: int, stream: Stream, rank: int, offset: int, limit: int = 65536) -> LogChunk:
        folder = self._folder(attempt)
        over = folder.exit.exists() or (folder.started.exists() and not folder.is_looked_after())
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
            raise EngineError(f"{self._root} could not be made ({error.strerror}): choose another folder.") from error
        if self._user is not None and not reachable_by(self._root, self._user.pw_name):
            raise EngineError(
                f"The user {self._user.pw_name} cannot reach {self._root}: choose a folder outside private ones, "
                "such as /var/lib/motley."
            )

    def _folder(self, attempt: int) -> AttemptFolder:
        return AttemptFolder(self._root / "attempts" / str(int(attempt)))

    def _prepare(self, launch: Launch, folder: AttemptFolder) -> LaunchFile:
        """Make the folders that the job will use, and write down all that its supervisor needs."""
        job = self._root / "jobs" / _uuid(launch.job)
        _make_folder(job, THROUGH)
        work, checkpoints = (self._make_own(job / name) for name in ("work", "checkpoints"))
        self._make_own(folder.job_writable)
        mark = secrets.token_hex(16)
        added = {"MOTLEY_CHECKPOINT_DIR": str(checkpoints), "MOTLEY_STOP_REASON_FILE": str(folder.stop_reason)}
        return LaunchFile(
            ranks=[
                self._rank_plan(
                    launch, rank, workdir=launch.workdir or work, added=added | _rank_env(folder, rank, mark)
                )
                for rank in range(len(launch.tasks))
            ],
            user=[self._user.pw_uid, self._user.pw_gid] if self._user is not None else None,
            isolation=self._isolation,
            mark=mark,
            log_limit_bytes=launch.log_limit_bytes,
        )

    def _rank_plan(self, launch: Launch, rank: int, *, workdir: Path, added: dict[str, str]) -> RankPlan:
        if not workdir.is_absolute():
            raise EngineError(f"The working folder {workdir} is not an absolute path: give one that starts with a /.")
        name = self._user.pw_name if self._user is not None else pwd.getpwuid(os.geteuid()).pw_name
        least = {"PATH": self._path, "HOME": str(workdir), "LANG": "C.UTF-8", "USER": name, "LOGNAME": name}
        shell = isinstance(launch.command, str)
        return RankPlan(
            argv=["/bin/sh", "-c", str(launch.command)] if shell else list(launch.command),
            env={**least, **launch.env, **launch.tasks[rank].env, "PWD": str(workdir), **added},
            workdir=str(workdir),
        )

    def _make_own(self, path: Path) -> Path:
        """A folder that belongs to the job's user."""
        _make_folder(path, OWN)
        if self._user is not None:
            os.chown(path, self._user.pw_uid, self._user.pw_gid, follow_symlinks=False)
        return path


def _make_folder(path: Path, mode: int) -> None:
    path.mkdir(exist_ok=True)
    path.chmod(mode)  # whatever the umask says


def _find_user(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise EngineError(f"There is no user {name} on this machine: create it, or name another.") from None


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
            f"{path} could not be written, or its supervisor not started ({error}): see that the disk has room, "
            "that the service may write there, and that util-linux is installed."
        ) from error


@contextmanager
def _held(path: Path) -> Iterator[int | None]:
    """The descriptor of the lock that we hold, None if another has it; a child that inherits it goes on holding it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor if lock(descriptor) else None
    finally:
        os.close(descriptor)


def _start_supervisor(folder: AttemptFolder, descriptor: int) -> None:
    """Start it in a session of its own, and not as our child: it outlives us, and leaves us no zombie."""
    with folder.supervisor_log.open("ab") as log:
        subprocess.run(  # noqa: S603 - our own program, with a path and a number
            ["setsid", "--fork", *PYTHON, "engines.supervisor", str(folder.path), str(descriptor)],  # noqa: S607
            cwd=PACKAGE_PARENT,
            env={"PATH": SYSTEM_PATH, "LANG": "C.UTF-8"},  # never our own environment: it holds secrets
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(descriptor,),
            check=True,
        )


def _report(attempt: int, folder: AttemptFolder) -> AttemptReport:
    """Read in the order opposite to the one written in: begun and no longer looked after is then the end of it."""
    started = folder.read_started()
    looked_after = folder.is_looked_after()
    if (ended := folder.read_exit()) is not None:
        return _ended(attempt, folder, ended)
    if started is None:
        return _not_started(attempt, folder, looked_after=looked_after)
    began = datetime.fromisoformat(started["at"])
    progress, invalid_lines = _progress(folder)
    report = AttemptReport(attempt, Phase.RUNNING, started_at=began, progress=progress, invalid_lines=invalid_lines)
    return report if looked_after else _lost(report, folder)


def _not_started(attempt: int, folder: AttemptFolder, *, looked_after: bool) -> AttemptReport:
    if looked_after:
        return AttemptReport(attempt, Phase.LAUNCHING)
    if folder.started.exists():  # since we looked
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
    """Its supervisor was killed: what is left of the job is killed too, and is gone once we see nothing of it."""
    launch = folder.read_launch()
    left = marked(launch["mark"]) if launch is not None else []
    dying = someone_is_dying()  # after the look for marks: whoever had lost its own by then is still seen here
    kill(left)
    message = "The supervisor of this attempt was killed, and the job with it: see the machine's log for why."
    gone = not left and not dying and _devices_are_free(folder)
    return replace(report, phase=Phase.LOST, proven_gone=gone, message=message)


def _devices_are_free(folder: AttemptFolder) -> bool:
    """Whether the driver, too, knows of no process on the GPUs that the attempt had; emulated ones have no driver."""
    launch = folder.read_launch()
    had = [plan["env"].get("CUDA_VISIBLE_DEVICES", "") for plan in launch["ranks"]] if launch is not None else []
    return all(device_is_free(uuid) for names in had for uuid in names.split(",") if uuid.startswith("GPU-"))


def _progress(folder: AttemptFolder) -> tuple[Progress | None, int]:
    content = read_json(folder.progress)
    return progress_from_json(content) if content is not None else (None, 0)
