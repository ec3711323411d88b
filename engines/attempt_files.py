"""Files of one attempt: the whole communication between the service, the supervisor and the job."""

import errno
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

from engines.lease_file import LeaseTerms
from engines.linux import is_locked
from engines.protocol import Stream

FULL = (errno.ENOSPC, errno.EDQUOT)
RESERVED_BYTES = 8 * 1024
LONGEST_S = 366 * 86_400.0


class SetupFile(TypedDict):
    """Command that makes the job's environment in `folder` (see `engines.supervision.environment_setup`)."""

    command: str
    folder: str
    log: str
    log_limit_bytes: int
    made_by: str
    time_file: NotRequired[str]
    """File for the seconds until the rank had its environment."""


class CgroupFile(TypedDict):
    """The cgroup of a rank, and what is written into its files."""

    path: str
    limits: dict[str, str]
    """`memory.max` → bytes, and so on: of controllers that are there."""
    gpu_minors: NotRequired[list[int] | None]
    """Minor numbers of the only GPUs that it may open; None: any."""


class RankLimits(TypedDict):
    """Limits of one rank on its node; 0: none, or that of its cgroup."""

    memory_mib: int
    processes: int
    """Processes and threads that its account may have on the node."""
    cgroup: NotRequired[CgroupFile | None]


class ContainerFile(TypedDict):
    """Container of a rank (see `engines.supervision.container`)."""

    runtime: str
    image: str
    fetch: bool
    folder: str
    """What the runtime writes; removed at the end."""
    folders: list[str]
    """Folders of the job, which it finds under the same paths."""
    read_only: list[str]
    driver: str
    store: str
    """Images of the machine."""
    init: str
    """Program that forwards signals to the job."""


class RankCommand(TypedDict):
    """Command of one node rank."""

    argv: list[str]
    env: dict[str, str]
    workdir: str
    node: str
    mounts: dict[str, str]
    """Storage → its path."""
    links: bool
    """Whether `mounts/<storage>` is made in the working folder: in a folder of the engine, not in one of its owner."""
    setup: SetupFile | None
    limits: NotRequired[RankLimits]
    container: NotRequired[ContainerFile | None]


class HooksFile(TypedDict):
    """Commands of the site that are run for each GPU (see `engines.supervision.gpu_hooks`); empty: none."""

    before: str
    after: str
    timeout_s: float
    gpus: list[str]
    """UUIDs."""


class CodeFile(TypedDict):
    """Archive of code that the supervisor unpacks before it starts the ranks."""

    archive: str
    folder: str
    """Folder, made by the service for the job's user, into which it is unpacked."""
    done: str
    """File that says that this was done: a later attempt finds the folder as the one before left it."""


class LaunchFile(TypedDict):
    ranks: list[RankCommand]
    user: list[int] | None
    """User id, group id and further groups to switch to; None keeps those of the service."""
    account: NotRequired[str]
    """Name of that user; empty without one."""
    isolation: str
    mark: str
    log_limit_bytes: int
    code: CodeFile | None
    checkpoints: NotRequired[CodeFile]
    """Archive of what an earlier attempt saved at another engine."""
    lease: NotRequired[LeaseTerms]
    """Lease without which the attempt stops by itself."""
    masked: NotRequired[list[str]]
    """Texts that are masked in logs; never written to the file."""
    waits: NotRequired[bool]
    """Whether the ranks, once they are prepared, wait for the file `go`."""
    fetched_s: NotRequired[float]
    """Seconds in which an agent fetched the archives."""
    hooks: NotRequired[HooksFile | None]


class StopFile(TypedDict):
    reason: str
    grace_s: float
    by_site: NotRequired[bool]
    """Whether the site, not the service, asked for it."""


class StartedFile(TypedDict):
    """Its existence means that the job's processes were started and must never be started again."""

    at: str
    boot_s: NotRequired[float]
    """Seconds since the boot of the machine: no step of its clock changes them."""
    process_space: NotRequired[str]
    """Where the supervisor's processes can be seen, as of `engines.linux.process_space`."""
    code_s: NotRequired[float]
    """Seconds in which code and checkpoints were fetched and unpacked before; absent: there were none."""


class ExitFile(TypedDict):
    """Its existence means that no process of the attempt is left, but for nodes that it names as silent."""

    exit_code: int
    started_at: str | None
    ended_at: str
    ran_s: NotRequired[float]
    """Duration by the monotonic clock."""
    message: str
    node_failed: NotRequired[bool]
    """Whether the node could not start the job: not the job's failure."""
    silent_nodes: NotRequired[list[str]]
    """Nodes whose rank left no outcome: processes may be left there, and only there."""
    missing_storage: NotRequired[dict[str, str]]
    faulty_gpus: NotRequired[dict[str, str]]
    """GPU (UUID) → why the site's hook before or after the job failed on it."""
    """Node → the storage that was missing there."""
    lease_over: NotRequired[bool]
    """Whether it stopped because the lease was over."""


class StartTimes(TypedDict):
    """Seconds of the parts of a start, as in `AttemptReport`."""

    code_s: float | None
    setup_s: float | None


def _seconds(told: object) -> float | None:
    """The duration that a file tells; None for what is none."""
    try:
        seconds = float(str(told))
    except ValueError:  # empty after a loss of power
        return None
    return seconds if 0 <= seconds <= LONGEST_S else None


class AttemptFolder:
    """Paths of the files of one attempt, with atomic writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = path / "lock"
        """Held by the supervisor from the launch on; if it is free, no supervisor is alive."""
        self.launch = path / "launch.json"
        self.started = path / "started.json"
        self.stop = path / "stop.json"
        self.stop_reason = path / "stop_reason"
        self.checkpoint_times = path / "checkpoint_times.json"
        """What the job reads anew while it runs; absent until it differs from what the environment says."""
        self.secrets = path / "secrets.json"
        """Secret environment variables of the job; deleted when the job starts."""
        self.progress = path / "progress.json"
        self.exit = path / "exit.json"
        self.supervisor_log = path / "supervisor.log"
        self.code = path / "code.tar.gz"
        self.checkpoints = path / "checkpoints.tar.gz"
        self.restored = path / "restored"
        self.session_socket = path / "session"
        self.go = path / "go"
        """Its existence lets the prepared ranks of a gang start their command."""
        self.job_writable = path / "job"
        """The only folder that the job may write to; all others belong to the service."""

    def log(self, stream: Stream, rank: int) -> Path:
        return self.path / f"{stream}.{rank}.log"

    def progress_lines(self, rank: int) -> Path:
        return self.job_writable / f"progress.{rank}.jsonl"

    def ready(self, rank: int) -> Path:
        """File of a rank that is prepared, and waits for `go`."""
        return self.path / f"ready.{rank}"

    def memory(self, rank: int) -> Path:
        """File for the most memory that the rank has held, in MiB."""
        return self.path / f"memory.{rank}"

    def setup_time(self, rank: int) -> Path:
        """File for the seconds until the rank had its environment."""
        return self.path / f"setup_s.{rank}"

    def start_times(self) -> StartTimes:
        """What is known of the parts of its start, by clocks that nobody sets; the job may have written the files."""
        try:
            setup_s = self.setup_time(0).read_text()
        except OSError:  # not over, or without a setup
            setup_s = ""
        started = self.read_started()
        return StartTimes(code_s=_seconds(started.get("code_s") if started else None), setup_s=_seconds(setup_s))

    def most_memory_mib(self) -> int:
        """Most memory that one of the ranks has held so far; 0: not known."""
        whole = (path for path in self.path.glob("memory.*") if path.suffix[1:].isdecimal())
        return max((_number_in(path) for path in whole), default=0)

    def is_supervised(self) -> bool:
        return is_locked(self.lock)

    def is_gone(self) -> bool:
        """Whether somebody has removed the files of the attempt, and not the disk that they are on.

        The folder itself may have stayed: a file that is written while the others are removed keeps it.
        """
        try:
            return not self.launch.exists() and self.path.parent.exists()
        except OSError:  # of a broken disk
            return False

    @property
    def small_files(self) -> tuple[Path, ...]:
        """Files that must be written whatever a job does to the disk."""
        return self.started, self.stop, self.stop_reason, self.exit

    def read_launch(self) -> LaunchFile | None:
        return cast("LaunchFile | None", read_json(self.launch))

    def take_secrets(self) -> dict[str, str]:
        """Secret variables of the job, whose file is deleted."""
        found: dict[str, str] = read_json(self.secrets) or {}
        self.secrets.unlink(missing_ok=True)
        return found

    def read_started(self) -> StartedFile | None:
        return cast("StartedFile | None", read_json(self.started))

    def read_stop(self) -> StopFile | None:
        return cast("StopFile | None", read_json(self.stop))

    def read_exit(self) -> ExitFile | None:
        return cast("ExitFile | None", read_json(self.exit))


def read_json(path: Path) -> Any:
    """Content of the file, None if it does not exist."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None


def write_json(path: Path, content: object, *, mode: int = 0o600) -> None:
    write_whole(path, json.dumps(content), mode=mode)


def write_whole(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Write atomically (temporary file, fsync, rename): readers, and the disk after a power loss, never see a part.

    On a full disk, space that was reserved for the file is used.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    try:
        _write_and_sync(beside, text, mode, os.O_CREAT | os.O_EXCL)
        beside.replace(path)
    except OSError as error:
        reserved = _reserved_for(path)
        if error.errno not in FULL or len(text.encode()) > RESERVED_BYTES or not reserved.exists():
            raise
        beside.unlink(missing_ok=True)
        _write_and_sync(reserved, text, mode, 0)
        reserved.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Have the names in this folder survive a power loss, too: without it, the file of before may be there again."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_gone(folder: Path) -> bool:
    """Whether somebody has removed the folder, and not the disk that it is on."""
    try:
        return not folder.exists() and folder.parent.exists()
    except OSError:  # of a broken disk
        return False


def reserve_space(*paths: Path) -> None:
    """Reserve space for small files to come: a full disk must not hide how a job ended, or that it is to stop."""
    for path in paths:
        descriptor = os.open(_reserved_for(path), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, RESERVED_BYTES)
        finally:
            os.close(descriptor)


def release_space(*paths: Path) -> None:
    """Give back what was reserved for these files."""
    for path in paths:
        _reserved_for(path).unlink(missing_ok=True)


def _reserved_for(path: Path) -> Path:
    return path.with_name(f".{path.name}.reserved")


def _write_and_sync(path: Path, text: str, mode: int, flags: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | flags, mode)
    with os.fdopen(descriptor, "w") as file:
        os.fchmod(descriptor, mode)  # independent of the umask
        file.write(text)
        file.flush()
        file.truncate()
        os.fsync(descriptor)


def utc_now() -> datetime:
    return datetime.now(UTC)


def _number_in(path: Path) -> int:
    """0 if the file has gone, or is empty after a loss of power."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0
