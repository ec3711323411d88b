"""Engine of one machine: each attempt runs under its own supervisor process, which outlives the service."""

import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path

from engines.attempt_files import (
    AttemptFolder,
    CgroupFile,
    ExitFile,
    LaunchFile,
    StartedFile,
    StopFile,
    write_json,
    write_whole,
)
from engines.gpu_readings import GpuReader, emulated_readings
from engines.lease_file import LeaseTerms
from engines.linux import lock, process_space, seconds_since_boot
from engines.nvml import MachineWatch, device_is_free
from engines.protocol import (
    AttemptReport,
    CheckpointTimes,
    EngineError,
    GpuReading,
    JobFile,
    Launch,
    LogChunk,
    NodeReport,
    NodeShare,
    OpenedFile,
    Phase,
    PowerCommand,
    SessionCommand,
    SiteReason,
    StopReason,
    Stream,
    WatchedGpu,
)
from engines.supervision.cgroup import kill_members, remove, write_limits
from engines.supervision.cgroup_subtree import CgroupSubtree, limits_of_share
from engines.supervision.container import remove_state
from engines.supervision.container_runtime import ContainerRuntime, find_runtime
from engines.supervision.disk import file_errors_explained, with_disk_fault
from engines.supervision.engine_root import (
    NO_CONTAINERS,
    SYSTEM_PATH,
    THROUGH,
    EngineRoot,
    make_folder,
    read_log,
    read_progress,
    refuse_ended,
)
from engines.supervision.gpu_hooks import GpuHooks, hooks_file
from engines.supervision.isolation import Isolation, best_isolation
from engines.supervision.kept_files import KeptFiles
from engines.supervision.processes import any_process_is_exiting, kill, marked
from engines.supervision.rank import PACKAGE_PARENT, PYTHON

NO_HOOKS = GpuHooks()
HERE = "127.0.0.1"
"""Address of rank 0: all nodes of this engine are this machine."""


class LocalEngine(KeptFiles):
    """Runs attempts on this machine; its whole state is in files below `root`, so that any instance can continue.

    `declared` names emulated nodes beside the GPUs that NVML finds. As root, jobs run as the account
    that their launch names, or as `job_user`.
    `path_prefix` is put before the PATH of jobs. `cgroup` is the folder of a subtree of cgroup v2 in which the service
    may make cgroups, or `auto` or `none`. `containers` names the runtime of containers, or is `auto` or `none`. `hooks`
    are the site's commands before and after jobs.
    `lease` is the file of a lease (`engines.lease_file`): attempts stop by themselves when it runs out.
    """

    def __init__(
        self,
        root: Path,
        *,
        declared: Sequence[str] = (),
        job_user: str | None = None,
        create_accounts: bool = False,
        path_prefix: str = "",
        cgroup: str = "auto",
        containers: str = "auto",
        hooks: GpuHooks = NO_HOOKS,
        isolation: Isolation | None = None,
        lease: Path | None = None,
    ) -> None:
        search_path = f"{path_prefix}:{SYSTEM_PATH}" if path_prefix else SYSTEM_PATH
        self._root = EngineRoot(root, job_user=job_user, create_accounts=create_accounts, search_path=search_path)
        self._declared = tuple(declared)
        self._asked_isolation = isolation
        self._cgroup_setting, self._containers = cgroup, containers
        self._found_cgroups: CgroupSubtree | None = None
        self._hooks = hooks
        self._machine, self._gpu_reader = MachineWatch(), GpuReader()
        self._lease = lease
        self._root.make()

    def nodes(self) -> list[NodeReport]:
        found = self._machine.report()
        declared = [NodeReport(name) for name in self._declared if found is None or name != found.name]
        limits = self._cgroups().in_words()
        runtime = str(self._runtime)
        reports = [
            replace(one, limits=limits, containers=runtime)
            for one in (*declared, *([found] if found is not None else []))
        ]
        return with_disk_fault(reports, self._root.path)

    def sync_drains(self, wanted: Mapping[str, str]) -> dict[str, str]:
        return {}  # nobody else gives out what is on this machine

    def power_command(self, node: str, *, wake: bool) -> PowerCommand | None:
        return None

    def launch(self, launch: Launch) -> None:
        """Start the attempt once: under its lock, which the supervisor inherits."""
        folder = self._root.attempt(launch.attempt)
        with file_errors_explained(folder.path):
            make_folder(folder.path, THROUGH)
            with _held(folder.lock) as descriptor:
                if descriptor is not None and not folder.started.exists() and not folder.exit.exists():
                    prepared = self._root.prepare(
                        launch,
                        folder,
                        address=launch.master_address or HERE,
                        isolation=self._isolation,
                        hidden=frozenset(),
                        cgroups=self._cgroups(),
                        runtime=self._runtime if launch.image is not None else NO_CONTAINERS,
                    )
                    if hooks := hooks_file(self._hooks, _gpus_of(prepared)):
                        prepared["hooks"] = hooks
                    if launch.waits:
                        prepared["waits"] = True
                    if self._lease is not None:
                        prepared["lease"] = LeaseTerms(path=str(self._lease), grace_s=launch.grace.total_seconds())
                    write_json(folder.launch, prepared)
                    _start_supervisor(folder, descriptor)

    def stop(self, attempt: int, *, reason: StopReason, grace: timedelta) -> None:
        """Write the stop request; the supervisor reads it, or a launch that is still to come."""
        folder = self._root.attempt(attempt)
        with file_errors_explained(folder.path):
            make_folder(folder.path, THROUGH)
            write_json(folder.stop, StopFile(reason=reason, grace_s=max(grace.total_seconds(), 0)))

    def is_ready(self, attempt: int) -> bool:
        """Whether the rank of a gang is prepared, and waits for `go` or has had it."""
        return self._root.attempt(attempt).ready(0).exists()

    def go(self, attempt: int) -> None:
        """Let the prepared rank of a gang start its command. Idempotent."""
        folder = self._root.attempt(attempt)
        if folder.launch.exists() and not folder.go.exists():
            with file_errors_explained(folder.path):
                write_whole(folder.go, "")

    def set_share(self, attempt: int, shares: Sequence[NodeShare]) -> None:
        """Rewrite the limits in the ranks' cgroups; without cgroups nothing holds a job to its CPUs."""
        for cgroup, share in zip(_cgroup_files(self._root.attempt(attempt).read_launch()), shares, strict=False):
            if cgroup is not None:
                write_limits(cgroup["path"], limits_of_share(cgroup["limits"], share))

    def set_checkpoint_times(self, attempt: int, times: CheckpointTimes) -> None:
        self._root.set_checkpoint_times(attempt, times)

    def poll(self, attempts: Iterable[int]) -> list[AttemptReport]:
        return [_report(attempt, self._root.attempt(attempt)) for attempt in attempts]

    def read_gpus(self, gpus: Sequence[WatchedGpu]) -> list[GpuReading]:
        return [*self._gpu_reader.read(gpus), *emulated_readings(gpus, seconds_since_boot())]

    def logs(self, attempt: int, stream: Stream, rank: int, offset: int, limit: int = 65536) -> LogChunk:
        folder = self._root.attempt(attempt)
        over = folder.exit.exists() or (folder.started.exists() and not folder.is_supervised())
        return read_log(folder, stream, rank, offset, limit, over=over)

    def list_files(self, job: str, path: str) -> list[JobFile]:
        return self._root.list_files(job, path)

    def open_file(self, job: str, path: str) -> OpenedFile:
        return self._root.open_file(job, path)

    def session(self, attempt: int, rank: int) -> SessionCommand:
        folder = self._root.attempt(attempt)
        refuse_ended(folder)
        started = folder.read_started()
        elsewhere = started is not None and started.get("process_space", process_space()) != process_space()
        if elsewhere and not folder.session_socket.is_socket():
            raise EngineError(
                "The job runs where this web server sees no processes, and its supervisor lets no session in: "
                "requeue it, or keep the engine's folder on a disk that has Unix sockets."
            )
        where = ["relay_from_elsewhere", str(folder.session_socket)] if elsewhere else ["enter", str(folder.path)]
        argv = [*PYTHON, f"engines.sessions.{where[0]}", where[1], str(rank)]
        return SessionCommand(argv, PACKAGE_PARENT, {"PATH": SYSTEM_PATH, "LANG": "C.UTF-8"})

    @cached_property
    def _isolation(self) -> Isolation:
        return self._asked_isolation or best_isolation()

    @cached_property
    def _runtime(self) -> ContainerRuntime:
        return find_runtime(self._containers, self._isolation)

    def _cgroups(self) -> CgroupSubtree:
        """The subtree of cgroups; looked for again when it is gone or empty: its unit was restarted."""
        found = self._found_cgroups
        if found is None or (found.path is not None and not (found.is_there and found.controllers)):
            found = self._found_cgroups = CgroupSubtree.find(self._cgroup_setting)
        return found


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
            ["setsid", "--fork", *PYTHON, "engines.supervision.supervisor", str(folder.path), str(descriptor)],  # noqa: S607
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
    progress, invalid_lines = read_progress(folder)
    report = AttemptReport(
        attempt,
        Phase.RUNNING,
        started_at=began,
        ran_s=_ran_s(started),
        progress=progress,
        invalid_lines=invalid_lines,
        peak_memory_mib=folder.most_memory_mib(),
        **folder.start_times(),
    )
    return report if supervised else _lost(report, folder, started)


def _ran_s(started: StartedFile) -> float | None:
    """Seconds since the start; None if the machine was booted since."""
    began_s = started.get("boot_s")
    ran_s = seconds_since_boot() - began_s if began_s is not None else -1.0
    return ran_s if ran_s >= 0 else None


def _not_started(attempt: int, folder: AttemptFolder, *, supervised: bool) -> AttemptReport:
    if supervised:
        return AttemptReport(attempt, Phase.LAUNCHING)
    if folder.started.exists():  # started since it was read
        return _report(attempt, folder)
    return AttemptReport(attempt, Phase.UNKNOWN, proven_gone=True)


def _ended(attempt: int, folder: AttemptFolder, ended: ExitFile) -> AttemptReport:
    progress, invalid_lines = read_progress(folder)
    busy = _busy_gpus(folder)
    return AttemptReport(
        attempt,
        Phase.LOST if ended.get("node_failed") else Phase.ENDED,
        proven_gone=not busy,
        busy_gpus=busy,
        exit_code=ended["exit_code"],
        started_at=datetime.fromisoformat(ended["started_at"]) if ended["started_at"] else None,
        ended_at=datetime.fromisoformat(ended["ended_at"]),
        ran_s=ended.get("ran_s"),
        progress=progress,
        invalid_lines=invalid_lines,
        peak_memory_mib=folder.most_memory_mib(),
        **folder.start_times(),
        message=ended["message"],
        reason=_reason_of(ended),
        missing_storage=ended.get("missing_storage", {}),
        faulty_gpus=ended.get("faulty_gpus", {}),
    )


def _reason_of(ended: ExitFile) -> SiteReason | None:
    """The site's reason, if the node or its connection to the service is the cause."""
    if ended.get("node_failed"):
        return SiteReason.NODE_FAILED
    if ended.get("faulty_gpus") and ended["started_at"] is None:
        return SiteReason.GPU_FAULT
    if ended.get("lease_over"):
        return SiteReason.PREEMPTED
    return SiteReason.STORAGE_MISSING if ended.get("missing_storage") else None


def _lost(report: AttemptReport, folder: AttemptFolder, started: StartedFile) -> AttemptReport:
    """Report on an attempt whose supervisor was killed: kill remaining processes; released once none is left.

    A process that started before the job's is not its own, even if it hangs in its exit, as under a broken driver.
    """
    launch = folder.read_launch()
    cgroups = _cgroups_of(launch)
    left = marked(launch["mark"]) if launch is not None else []
    left_in_cgroups = [path for path in cgroups if kill_members(path)]
    owners = {os.geteuid(), *(launch["user"][:1] if launch is not None and launch["user"] else ())}
    dying = any_process_is_exiting(
        owners, since_s=started.get("boot_s", 0.0)
    )  # after `marked`: an exiting process that has lost its mark is seen here
    kill(left)
    message = (
        "The supervisor of this attempt was killed, and the job with it: see the log of the machine for the cause."
    )
    if left or left_in_cgroups or dying:
        return replace(report, phase=Phase.LOST, message=message)
    for path in cgroups:
        remove(path)
    for rank in launch["ranks"] if launch is not None else []:
        if (container := rank.get("container")) is not None:
            remove_state(container["folder"])
    busy = _busy_gpus(folder)
    return replace(report, phase=Phase.LOST, proven_gone=not busy, busy_gpus=busy, message=message)


def _cgroups_of(launch: LaunchFile | None) -> list[str]:
    return [cgroup["path"] for cgroup in _cgroup_files(launch) if cgroup is not None]


def _cgroup_files(launch: LaunchFile | None) -> list[CgroupFile | None]:
    """The cgroup of each rank; None: it has none."""
    ranks = launch["ranks"] if launch is not None else []
    return [rank["limits"].get("cgroup") if "limits" in rank else None for rank in ranks]


def _busy_gpus(folder: AttemptFolder) -> list[str]:
    """GPUs of the attempt on which the driver still lists a process, or which it lost; emulated GPUs have no driver."""
    launch = folder.read_launch()
    return [uuid for uuid in _gpus_of(launch) if not device_is_free(uuid)] if launch is not None else []


def _gpus_of(launch: LaunchFile) -> list[str]:
    """UUIDs of the GPUs that a driver knows."""
    had = [plan["env"].get("CUDA_VISIBLE_DEVICES", "") for plan in launch["ranks"]]
    return [uuid for names in had for uuid in names.split(",") if uuid.startswith("GPU-")]
