"""Protocol between the scheduler and an engine.

Commands are idempotent and name their attempt. Their effect shows in later reports, never in a return value, because
the scheduler may die in between.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntFlag, StrEnum
from pathlib import Path
from typing import Protocol


class StopReason(StrEnum):
    """Why an attempt is stopped; the job can read it in `$MOTLEY_STOP_REASON_FILE`."""

    PREEMPT = "preempt"
    CANCEL = "cancel"
    TIMEOUT = "timeout"
    DRAIN = "drain"


class Stream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"
    SETUP = "setup"
    """Output of the setup command, both streams."""
    ORDER = "order"
    """No output: in which order the first two were received (see `engines.output_order`)."""


OUTPUT = (Stream.STDOUT, Stream.STDERR, Stream.SETUP)
"""What a job and its setup wrote."""


class SiteReason(StrEnum):
    """Why the site, not the service, delays or ended an attempt; none of these ends is the job's failure."""

    WAITING_RESOURCES = "waiting_resources"
    """The engine's own queue holds it: others use what it was placed on."""
    WAITING_NODE = "waiting_node"
    """A node of it is drained, reserved or down."""
    HELD = "held"
    """The engine's queue holds it until an administrator acts: a hold, a limit of the partition or of the account."""
    CANCELLED = "site_cancelled"
    PREEMPTED = "site_preempted"
    TIME_LIMIT = "site_time_limit"
    NODE_FAILED = "site_node_failed"
    OUT_OF_MEMORY = "out_of_memory"
    """It used more memory than it was given: an ending that the job can cause."""
    STORAGE_MISSING = "storage_missing"
    """A node did not have a storage under its path, or the account of jobs may not read it there."""
    GPU_FAULT = "gpu_fault"
    """The site's hook before the job failed on a GPU: the job was not started."""
    NOT_READY = "not_ready"
    """A server of the gang was not ready in time, or could not be: no rank was started."""


class CpuLimit(StrEnum):
    """How the CPU time of jobs on a node is limited."""

    SHARE = "share"
    """Where CPUs are short, each job gets them in proportion to what it asked for."""
    QUOTA = "quota"
    """No job gets more than it asked for, though CPUs be idle."""
    NONE = "none"


class Phase(StrEnum):
    """Phase of an attempt at its engine."""

    LAUNCHING = "launching"
    RUNNING = "running"
    ENDED = "ended"
    LOST = "lost"
    """Its supervisor or a node of it died, so how it ended is unknown."""
    UNKNOWN = "unknown"
    """The engine does not know it: the launch was not sent, or was lost.

    Sending it again is safe: an engine that may have started it all the same must see to it that one start wins.
    """

    @property
    def is_over(self) -> bool:
        """Whether it ran, and runs no more."""
        return self in (Phase.ENDED, Phase.LOST)


@dataclass(frozen=True)
class NodeLaunch:
    """Launch on one node: one process per node, as torchrun expects."""

    node: str
    env: Mapping[str, str]
    gpus: int = 0
    cpus: int = 0
    """CPUs that the job asked for there; 0: the site's choice."""
    memory_mib: int = 0


@dataclass(frozen=True)
class NodeShare:
    """New CPUs and memory of a rank that runs, which is not told; 0: no change."""

    cpus: int = 0
    memory_mib: int = 0


@dataclass(frozen=True)
class CheckpointTimes:
    """Seconds from which a job's checkpoint interval follows: uptime of its nodes, and time of a checkpoint, if known.

    `notified` is the part of losses that are announced `notice_s` before.
    """

    mean_up_s: float
    notified: float
    notice_s: float
    checkpoint_s: float | None = None


@dataclass(frozen=True)
class Setup:
    """Command that makes the environment of a job, before the job starts and unless one with the same key exists."""

    command: str
    """Run by `/bin/sh -c` in the working folder; `$MOTLEY_ENV_DIR` is the folder to fill."""
    key: str
    """Name of the environment: letters and digits."""


@dataclass(frozen=True)
class Image:
    """Image of the container in which the command of each rank runs."""

    name: str
    """A name, or an archive: `oci-archive:/path`, `docker-archive:/path`, `dir:/path`, `sif:/path`."""
    fetch: bool
    """Whether it may be fetched: an archive from its folder, a name from its registry."""


@dataclass(frozen=True)
class Launch:
    """Input for starting one attempt.

    `env` is common to all nodes; the engine adds what it chooses: the paths `MOTLEY_CHECKPOINT_DIR`,
    `MOTLEY_PROGRESS`, `MOTLEY_STOP_REASON_FILE`, the working folder where `workdir` is None, and the address at which
    the ranks find rank 0 (`MASTER_ADDR`). Where the site chooses the devices, its `CUDA_VISIBLE_DEVICES` replaces
    that of `tasks`.
    """

    attempt: int
    job: str
    command: str | Sequence[str]
    """A string is run by `/bin/sh -c`, a list is executed directly."""
    tasks: Sequence[NodeLaunch]
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: Path | None = None
    code: Path | None = None
    """Archive (.tar.gz) that is unpacked into the job's own working folder before its first attempt; its name without
    the suffix is its digest."""
    checkpoints: Path | None = None
    """Archive (.tar.gz) of what an earlier attempt saved at another engine: unpacked into `MOTLEY_CHECKPOINT_DIR`."""
    setup: Setup | None = None
    image: Image | None = None
    log_limit_bytes: int = 64 * 1024 * 1024
    gpu_type: str = ""
    """Type of all GPUs of the gang."""
    grace: timedelta = timedelta(seconds=30)
    """Time between SIGTERM and SIGKILL where the site stops the attempt by itself."""
    time_limit: timedelta | None = None
    """Time after which the service will stop the attempt: the site may plan with it."""
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Storage → its path on each of the nodes: where one is missing, the command is not started."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Environment variables that are deleted from the disk when the job starts, and masked in its logs."""
    limits_memory: bool = False
    """Whether a rank that uses more memory than its `NodeLaunch.memory_mib` is ended."""
    limits_cpus: CpuLimit = CpuLimit.NONE
    """Holds where the engine may make cgroups."""
    most_processes: int = 0
    """Processes and threads that a rank may have; without cgroups, that its account may have on the node, unless that
    is root. 0: no limit."""
    master_address: str = ""
    """Address of rank 0, where the ranks are on several machines of which each is told only of its own; empty: the
    engine knows it."""
    waits: bool = False
    """Whether the ranks, once prepared, wait for `LocalEngine.go`: others of the gang are on other machines."""
    account: str = ""
    """Unix account to run as, where the service is root; empty: that of the engine. A job keeps that of its first
    attempt."""
    fetched_s: float | None = None
    """Seconds in which an agent fetched the code and the checkpoints; None: there were none to fetch."""


@dataclass(frozen=True)
class MetricReport:
    """The last value of a named metric, and the step of its line."""

    step: int
    value: float


@dataclass(frozen=True)
class Progress:
    """Summary of the progress lines of one attempt so far (rank 0)."""

    reports: int
    first_step: int
    first_at: datetime
    step: int
    at: datetime
    loss: float | None = None
    epoch: float | None = None
    batch_size: int | None = None
    total_steps: int | None = None
    """As the job said it last."""
    grad_sqr: float | None = None
    grad_var: float | None = None
    """Variance of the gradient over batches of `batch_size`; `grad_sqr` is its squared norm. Both of the last line."""
    checkpoint_s: float | None = None
    checkpoint_at: datetime | None = None
    """What the last checkpoint that was reported took, and when it was made."""
    checkpoint_step: int | None = None
    """The last step that was reported before it was made."""
    restore_s: float | None = None
    restored_at: datetime | None = None
    """What the restore of an earlier checkpoint took, and when it was over, as told with the first step."""
    metrics: Mapping[str, MetricReport] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    """Name → address of a page elsewhere that shows the job."""
    milestones: Mapping[str, float | None] = field(default_factory=dict)
    """Step in `$MOTLEY_MILESTONES` → value of its metric in the first line at or after that step; `last`: so far.

    None: it was no finite number, as of a training that has diverged.
    """

    @property
    def steps_per_second(self) -> float | None:
        """Measured throughput; None until two reports differ in time."""
        seconds = (self.at - self.first_at).total_seconds()
        return (self.step - self.first_step) / seconds if seconds > 0 else None


@dataclass(frozen=True)
class AttemptReport:
    """Report on one attempt.

    `proven_gone` is the proof on which its GPUs are given to others: no process of the attempt is left, including
    descendants that left the session. `exit_code` is the shell's (128 + n for signal n); None unless it ended.
    """

    attempt: int
    phase: Phase
    proven_gone: bool = False
    exit_code: int | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    ran_s: float | None = None
    """Duration of its processes so far by a clock that nobody sets; None: the engine has none."""
    progress: Progress | None = None
    invalid_lines: int = 0
    """Lines of the progress file so far that are not valid reports."""
    peak_memory_mib: int = 0
    """Most memory that it has held so far on one of its nodes, without caches of files; 0: not known."""
    code_s: float | None = None
    """Seconds before its start in which its code and its checkpoints were fetched and unpacked; None: not known."""
    setup_s: float | None = None
    """Seconds after its start until rank 0 had its environment; None: not yet, or the job has no setup."""
    message: str = ""
    reason: SiteReason | None = None
    """What the site does with it, or why the site ended it."""
    silent_nodes: Sequence[str] = ()
    """Nodes on which its end is not proven; it is proven on all others of a lost attempt that names some."""
    busy_gpus: Sequence[str] = ()
    """UUIDs of GPUs that are still in use, or lost, though no process of the attempt is left; its others are free."""
    missing_storage: Mapping[str, str] = field(default_factory=dict)
    """Node → the storage that was missing there; with it the reason is STORAGE_MISSING."""
    faulty_gpus: Mapping[str, str] = field(default_factory=dict)
    """UUID → why the site's hook before or after the job failed on this GPU."""
    devices: Mapping[str, str] = field(default_factory=dict)
    """Node → physical GPUs, where the site chose them: "0-1,3". Information; claims are not bound to them."""
    site_job: str = ""
    """Its number in the site's own queue, for people who look there; empty: there is none."""


@dataclass(frozen=True)
class GpuReport:
    """A GPU as the driver describes it."""

    index: int
    uuid: str = ""
    memory_mib: int = 0
    fault: str = ""
    """Why it must get no job, as long as the driver says so; empty: it is healthy."""
    xid: int = 0
    """Critical XID error of the last minute that no job causes; 0: none. The driver tells each once."""
    xid_at: datetime | None = None
    """When it was heard of."""

    @property
    def healthy(self) -> bool:
        return not self.fault


class Throttle(IntFlag):
    """Why a GPU runs below its clock, as bits of NVML; those of idle GPUs and of settings are left out."""

    NONE = 0
    SW_POWER_CAP = 0x04
    HW_SLOWDOWN = 0x08
    SW_THERMAL = 0x20
    HW_THERMAL = 0x40
    HW_POWER_BRAKE = 0x80


@dataclass(frozen=True)
class WatchedGpu:
    """A GPU that is to be read."""

    gpu: int
    """The service's number of it."""
    node: str
    index: int
    uuid: str = ""
    emulated: bool = False
    busy: bool = False
    """Whether an attempt runs on it: an emulated GPU has no other load."""
    attempt: int | None = None
    """The attempt whose claim holds it; where the site chooses the devices, that may have another of the node."""
    memory_mib: int = 0
    power_w: float = 0
    """Power limit of its type."""


@dataclass(frozen=True)
class GpuReading:
    """Reading of one GPU; None: the driver does not say."""

    gpu: int
    """As of `WatchedGpu`."""
    utilization: float | None = None
    """Per cent of the last second, or less, in which a kernel ran."""
    memory_used_mib: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    ecc_errors: int | None = None
    """Uncorrectable memory errors since the driver was loaded or the GPU was reset."""
    throttle: Throttle = Throttle.NONE
    processes: Sequence[int] | None = None
    """Processes that compute on it now, by the numbers of the machine; None: not known."""
    attempt: int | None = None
    """The attempt to which the site gave this GPU, where the site chooses; None: the one whose claim holds it."""


class NodeState(StrEnum):
    """State of a node at its engine."""

    OK = "ok"
    CORDONED = "cordoned"
    """The site takes no new jobs there: drained, reserved, or about to reboot."""
    SILENT = "silent"
    """The engine does not hear from it."""
    SLEEPING = "sleeping"
    """The site has switched it off to save energy, or is doing so."""
    WAKING = "waking"
    """The site is switching it on: it has not answered yet."""

    @property
    def is_heard(self) -> bool:
        """Whether the node answers its engine."""
        return self in (NodeState.OK, NodeState.CORDONED)


@dataclass(frozen=True)
class NodeReport:
    """Heartbeat of a node; where the engine can query the hardware, also its resources."""

    name: str
    gpu_type: str = ""
    gpus: Sequence[GpuReport] = ()
    cpus: int = 0
    memory_mib: int = 0
    state: NodeState = NodeState.OK
    reason: str = ""
    """Why it is not ok, in the site's words."""
    limits: str = ""
    """Which limits of jobs are enforced there, and how."""
    containers: str = ""
    """The container runtime there; empty: it runs none."""
    address: str = ""
    foreign_gpus: int = 0
    """GPUs that jobs of others use now, or that have no CPUs or memory left because of them."""
    foreign_cpus: int = 0
    foreign_memory_mib: int = 0
    cpus_per_core: int = 1
    """Where the engine books CPUs for jobs, it books whole cores."""


@dataclass(frozen=True)
class LogChunk:
    """Bytes of a log from `offset`; continue at `next_offset`. `eof`: the attempt has ended, and so does its log."""

    data: bytes
    offset: int
    next_offset: int
    size: int
    eof: bool


@dataclass(frozen=True)
class JobFile:
    """A file or a folder of a job; neither: a link or a device."""

    name: str
    is_folder: bool
    is_file: bool
    size: int
    modified_at: datetime


@dataclass(frozen=True)
class OpenedFile:
    """Descriptor of a regular file, and its size when it was opened; who has it closes it."""

    descriptor: int
    size: int
    is_remote: bool = False
    """Whether it is a connection to a server, which sends bytes of the file once, when a line `START END` asks."""


@dataclass(frozen=True)
class SessionCommand:
    """Command line of a process on the service's machine that relays a session (`engines.sessions`) into a rank."""

    argv: Sequence[str]
    folder: Path
    env: Mapping[str, str]


@dataclass(frozen=True)
class PowerCommand:
    """Command line that puts a node to sleep or wakes it, to be run on the service's machine."""

    argv: Sequence[str]
    folder: Path | None
    env: Mapping[str, str]


class EngineError(Exception):
    """A command to an engine failed; the message says what an administrator can do."""


class NodeFault(EngineError):
    """The node cannot start attempts: its disk is full or broken, say. That is not the job's fault."""


class EngineUnreachable(EngineError):
    """The engine does not answer: nothing was refused, nothing is known, and the command is worth repeating."""


class NoSuchFile(EngineError):
    """The path names no file or folder of the job."""

    def __init__(self) -> None:
        super().__init__("There is no such file in the folder of the job, or it is a link, which is not followed.")


class Engine(Protocol):
    """The commands of every engine."""

    def nodes(self) -> list[NodeReport]:
        """Every node that the engine knows, also silent ones."""

    def sync_drains(self, wanted: Mapping[str, str]) -> dict[str, str]:
        """Drain nodes at the site as well, if the engine is allowed to; called after `nodes`.

        `wanted`: every node that the engine is given → why it is out of service, empty for one in service. Only drains
        of the service itself are changed. Returns the nodes of which the site refused it, and why.
        """

    def power_command(self, node: str, *, wake: bool) -> PowerCommand | None:
        """Command by which the site puts the node to sleep, or wakes it; None: the engine has none.

        It may be repeated. That for sleep ends when the node is off, and fails if jobs of others use the node.
        """

    def launch(self, launch: Launch) -> None:
        """Start the attempt; idempotent by attempt number."""

    def stop(self, attempt: int, *, reason: StopReason, grace: timedelta) -> None:
        """Send SIGTERM, and SIGKILL after the grace period. Idempotent; a repeat may shorten the grace period."""

    def set_share(self, attempt: int, shares: Sequence[NodeShare]) -> None:
        """Lower or raise a running attempt, rank by rank, where the engine limits CPUs or memory; elsewhere do nothing.

        Idempotent. What it uses already of memory is taken back only as far as that kills nothing, and its memory is
        never raised above what it was launched with.
        """

    def set_checkpoint_times(self, attempt: int, times: CheckpointTimes) -> None:
        """Replace the file `MOTLEY_CHECKPOINT_TIMES_FILE` of an attempt that runs; of others do nothing. Idempotent."""

    def poll(self, attempts: Iterable[int]) -> list[AttemptReport]:
        """One report per attempt; an attempt that was never launched here is UNKNOWN, with no process left.

        An attempt may be missing from the answer: the engine cannot say anything new of it now.
        """

    def read_gpus(self, gpus: Sequence[WatchedGpu]) -> list[GpuReading]:
        """Read these GPUs once, in one pass; those that the engine cannot read are missing from the answer.

        It returns in a fraction of a second, whatever a driver does.
        """

    def logs(self, attempt: int, stream: Stream, rank: int, offset: int, limit: int = 65536) -> LogChunk: ...

    def list_files(self, job: str, path: str) -> list[JobFile]:
        """Content of a folder of the job's own: its working folder `work` and its `checkpoints`; of "", these two."""

    def open_file(self, job: str, path: str) -> OpenedFile:
        """A file of them, open for reading; raises `NoSuchFile`."""

    def session(self, attempt: int, rank: int) -> SessionCommand: ...

    def attempts(self) -> dict[int, bool]:
        """The attempts whose files it has → whether they have ended: after the loss of a database, say."""

    def sizes(self, jobs: Mapping[str, Sequence[int]]) -> Mapping[str, int]:
        """Bytes on disk of what `discard` would remove of each job; one that is missing is being measured: ask later.

        A size is told once.
        """

    def discard(self, jobs: Mapping[str, Sequence[int]]) -> None:
        """Remove the files of jobs of which nothing runs: of these attempts, the working folders, the checkpoints.

        Idempotent. They are out of reach at once; their space comes back later.
        """
