"""Files of one attempt: the whole communication between the service, the supervisor and the job."""

import json
import os
import re
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

from engines.linux import is_locked
from engines.protocol import Stream

LEAST_MASKED = 8


class SetupFile(TypedDict):
    """Command that makes the job's environment in `folder` (see `engines.supervision.setup`)."""

    command: str
    folder: str
    log: str
    log_limit_bytes: int
    made_by: str


class CgroupFile(TypedDict):
    """The cgroup of a rank, and what is written into its files."""

    path: str
    limits: dict[str, str]
    """`memory.max` → bytes, and so on: of controllers that are there."""


class RankLimits(TypedDict):
    """Limits of one rank on its node; 0: none, or that of its cgroup."""

    memory_mib: int
    processes: int
    """Processes and threads that its account may have on the node."""
    cgroup: NotRequired[CgroupFile | None]


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
    masked: NotRequired[list[str]]
    """Texts that are masked in logs; never written to the file."""


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
    """Node → the storage that was missing there."""


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
        self.secrets = path / "secrets.json"
        """Secret environment variables of the job; deleted when the job starts."""
        self.progress = path / "progress.json"
        self.exit = path / "exit.json"
        self.supervisor_log = path / "supervisor.log"
        self.code = path / "code.tar.gz"
        self.session_door = path / "session"
        self.job_writable = path / "job"
        """The only folder that the job may write to; all others belong to the service."""

    def log(self, stream: Stream, rank: int) -> Path:
        return self.path / f"{stream}.{rank}.log"

    def progress_lines(self, rank: int) -> Path:
        return self.job_writable / f"progress.{rank}.jsonl"

    def is_supervised(self) -> bool:
        return is_locked(self.lock)

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
    """Write atomically (temporary file, fsync, rename): readers, and the disk after a power loss, never see a part."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "w") as file:
            os.fchmod(descriptor, mode)  # independent of the umask
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def utc_now() -> datetime:
    return datetime.now(UTC)


class MaskedLog:
    """Log in which secret texts are replaced by `***`, also where one is split between two writes."""

    def __init__(self, log: "CappedLog", texts: Iterable[str]) -> None:
        self._log = log
        self._texts = sorted({text.encode() for text in texts if text}, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._texts))) if self._texts else None
        self._held = b""
        """Held back: the last bytes written, as they may be the beginning of a secret."""

    def write(self, data: bytes) -> None:
        if self._pattern is None:
            self._log.write(data)
            return
        masked = self._pattern.sub(b"***", self._held + data)
        held = self._beginning_at_the_end(masked)
        self._held = masked[len(masked) - held :]
        self._log.write(masked[: len(masked) - held])

    def close(self) -> None:
        self._log.write(self._held)
        self._log.close()

    def _beginning_at_the_end(self, data: bytes) -> int:
        """Length of the longest end of the data with which a secret begins."""
        most = max(map(len, self._texts)) - 1
        lengths = range(min(most, len(data)), 0, -1)
        return next((n for n in lengths if any(text.startswith(data[-n:]) for text in self._texts)), 0)


def masked_texts(values: Iterable[str]) -> list[str]:
    """What is masked for these values: each, and each of its lines that is long enough to say something."""
    return sorted({text for value in values for text in (value, *value.splitlines()) if len(text) >= LEAST_MASKED})


class CappedLog:
    """Writes bytes up to a limit, then a truncation mark; the rest is dropped, so that the job never blocks."""

    def __init__(self, path: Path, *, limit_bytes: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._limit_bytes = limit_bytes
        self._left_bytes = limit_bytes
        self._full = False

    def write(self, data: bytes) -> None:
        if self._full:
            return
        try:
            self._write_all(data[: self._left_bytes])
            if len(data) > self._left_bytes:
                self._full = True
                self._write_all(f"\n... truncated by Motley at {self._limit_bytes} bytes\n".encode())
        except OSError:  # a full disk costs the log, not the job
            self._full = True
        self._left_bytes -= len(data)

    def close(self) -> None:
        os.close(self._file)

    def _write_all(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._file, data) :]
