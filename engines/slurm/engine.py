"""Engine of a Slurm cluster: each attempt is one Slurm job, whose batch script is the supervisor.

All that it knows is in files on a folder that the nodes share, and in Slurm. Claims are of a number of GPUs on a node;
which devices they are is Slurm's choice. Nothing is concluded from a cluster that does not answer.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from pathlib import Path

from engines.attempt_files import AttemptFolder, StopFile, write_json, write_whole
from engines.gpu_readings import emulated_readings
from engines.linux import seconds_since_boot
from engines.protocol import (
    AttemptReport,
    CheckpointTimes,
    EngineError,
    EngineUnreachable,
    GpuReading,
    GpuReport,
    JobFile,
    Launch,
    LogChunk,
    NodeReport,
    NodeShare,
    OpenedFile,
    PowerCommand,
    SessionCommand,
    StopReason,
    Stream,
    WatchedGpu,
)
from engines.slurm.commands import SlurmCommands
from engines.slurm.files import SlurmFiles, SlurmLaunchFile
from engines.slurm.foreign_use import Use, foreign_use, own_use
from engines.slurm.options import SlurmOptions
from engines.slurm.parsing import SlurmNode
from engines.slurm.rank import step_command
from engines.slurm.reports import Reports
from engines.slurm.runtime import install_runtime
from engines.slurm.samples import Samples
from engines.slurm.site import Site
from engines.slurm.submission import batch_script, launch_file, sbatch_options
from engines.supervision.disk import file_errors_explained, with_disk_fault
from engines.supervision.engine_root import (
    SYSTEM_PATH,
    THROUGH,
    EngineRoot,
    make_folder,
    read_log,
    refuse_ended,
)
from engines.supervision.kept_files import KeptFiles
from engines.supervision.rank import PACKAGE_PARENT, PYTHON

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
HIDDEN = frozenset({"CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID", "SLURM_JOBID", "SLURMD_NODENAME"})
"""Slurm's own replace them: its devices are those that the job may see, and srun and scontrol ask by its number."""


class SlurmEngine(KeptFiles):
    """Runs attempts on the nodes of a Slurm cluster.

    As root, jobs run as the account that their launch names, or as `job_user`; every node must know it by the same
    number.
    """

    def __init__(
        self,
        options: SlurmOptions,
        *,
        job_user: str | None = None,
        create_accounts: bool = False,
        timeout_s: float = 20.0,
    ) -> None:
        search_path = ":".join(part for part in (options.search_path, SYSTEM_PATH) if part)
        self._options = options
        self._root = EngineRoot(
            options.root, job_user=job_user, create_accounts=create_accounts, search_path=search_path
        )
        self._root.make()
        slurm = SlurmCommands(conf=options.slurm_conf, timeout_s=timeout_s)
        self._site = Site(slurm, root=self._root.path, partition=options.partition, reservation=options.reservation)
        self._samples = Samples(self._root)
        self._reports = Reports(self._root, self._site, late_disk_s=options.late_disk_s)

    def nodes(self) -> list[NodeReport]:
        nodes = self._site.nodes().values()
        own = own_use(self._site.allocations(), self._launch_file_of)
        reports = [_node_report(node, foreign_use(node, own.get(node.name, Use()), self._options)) for node in nodes]
        return with_disk_fault(reports, self._root.path)

    def sync_drains(self, wanted: Mapping[str, str]) -> dict[str, str]:
        return self._site.sync_drains(wanted) if self._options.drain else {}

    def power_command(self, node: str, *, wake: bool) -> PowerCommand | None:
        if not self._options.power_saving:
            return None
        name, verb = self._site.node(node).name, "wake" if wake else "sleep"
        argv = [*PYTHON, "engines.slurm.power", verb, name, self._site.drain_mark]
        return PowerCommand(argv, PACKAGE_PARENT, self._site.slurm.env)

    def launch(self, launch: Launch) -> None:
        """Submit the attempt once. A submission whose answer was lost is found by its name."""
        folder = self._root.attempt(launch.attempt)
        files = SlurmFiles(folder)
        with file_errors_explained(folder.path):
            make_folder(folder.path, THROUGH)
            if folder.exit.exists() or files.begun.exists() or files.submitted.exists():
                return
            if files.submitting.exists() and (known := self._site.jobs().get(launch.attempt)):
                write_json(files.submitted, {"job": known[0].number})
            else:
                self._write_input(launch, folder)
                self._submit(launch, files)

    def stop(self, attempt: int, *, reason: StopReason, grace: timedelta) -> None:
        """Write the stop request, which the supervisor reads; a job that still waits is cancelled in Slurm."""
        folder = self._root.attempt(attempt)
        files = SlurmFiles(folder)
        with file_errors_explained(folder.path):
            make_folder(folder.path, THROUGH)
            write_json(folder.stop, StopFile(reason=reason, grace_s=max(grace.total_seconds(), 0)))
        if not files.begun.exists():
            folder.secrets.unlink(missing_ok=True)  # of a job that will not start
        if not files.begun.exists() and files.submitting.exists():
            number = files.read_submitted()
            numbers = {number} if number is not None else {job.number for job in self._site.jobs().get(attempt, [])}
            self._site.slurm.cancel(numbers, "--state=PENDING")

    def set_share(self, attempt: int, shares: Sequence[NodeShare]) -> None:
        """Do nothing: Slurm has reserved the CPUs for as long as the job runs."""

    def set_checkpoint_times(self, attempt: int, times: CheckpointTimes) -> None:
        self._root.set_checkpoint_times(attempt, times)

    def poll(self, attempts: Iterable[int]) -> list[AttemptReport]:
        try:
            jobs = self._site.jobs()
        except EngineError as error:
            log.warning("Slurm does not answer: %s", error)
            jobs = None
        reports = (self._reports.of(attempt, jobs) for attempt in attempts)
        return [report for report in reports if report is not None]

    def read_gpus(self, gpus: Sequence[WatchedGpu]) -> list[GpuReading]:
        return [*self._samples.read(gpus), *emulated_readings(gpus, seconds_since_boot())]

    def logs(self, attempt: int, stream: Stream, rank: int, offset: int, limit: int = 65536) -> LogChunk:
        folder = self._root.attempt(attempt)
        return read_log(folder, stream, rank, offset, limit, over=self._reports.is_over(attempt))

    def _launch_file_of(self, job_name: str) -> SlurmLaunchFile | None:
        return SlurmFiles(self._root.attempt(self._site.attempt_of(job_name))).read_launch()

    def list_files(self, job: str, path: str) -> list[JobFile]:
        return self._root.list_files(job, path)

    def open_file(self, job: str, path: str) -> OpenedFile:
        return self._root.open_file(job, path)

    def session(self, attempt: int, rank: int) -> SessionCommand:
        folder = self._root.attempt(attempt)
        refuse_ended(folder)
        files = SlurmFiles(folder)
        site, job = files.read_launch(), files.read_submitted()
        if site is None or job is None:
            raise EngineError("The attempt has not been submitted to Slurm: try again once it runs.")
        step = step_command(site, rank, name="session", job=job)
        argv = [*step, "engines.sessions.enter", str(folder.path), str(rank)]
        return SessionCommand(argv, self._runtime, self._site.slurm.env)

    def _write_input(self, launch: Launch, folder: AttemptFolder) -> None:
        nodes = [self._site.node(task.node) for task in launch.tasks]
        files = SlurmFiles(folder)
        one_host = len({node.address for node in nodes}) == 1
        address = LOOPBACK if one_host else nodes[0].address
        write_json(folder.launch, self._root.prepare(launch, folder, address=address, hidden=HIDDEN))
        write_json(files.launch, launch_file(launch, nodes, self._options, kill_wait_s=self._site.kill_wait_s))
        for rank in range(len(nodes)):  # made early, since a network disk remembers for a while that a file is missing
            write_whole(files.heartbeat(rank), "")

    def _submit(self, launch: Launch, files: SlurmFiles) -> None:
        folder = self._root.attempt(launch.attempt)
        nodes = [self._site.node(task.node) for task in launch.tasks]
        name, output = self._site.job_name(launch.attempt), folder.supervisor_log
        options = sbatch_options(launch, nodes, self._options, name=name, log=output)
        files.submitting.touch()
        try:
            script = batch_script(folder, runtime=self._runtime, python=self._options.python)
            job = self._site.slurm.submit(options, script)
        except EngineUnreachable:
            raise  # it may have been accepted all the same
        except EngineError:
            files.submitting.unlink()
            raise
        write_json(files.submitted, {"job": job})

    @cached_property
    def _runtime(self) -> Path:
        return install_runtime(self._root.path)


def _node_report(node: SlurmNode, foreign: Use) -> NodeReport:
    return NodeReport(
        name=node.name.lower(),
        gpu_type=node.gpu_type.lower() if len(node.gpus) == 1 else "",
        gpus=tuple(GpuReport(index) for index in range(node.gpu_count)),
        cpus=node.cpus,
        memory_mib=node.memory_mib,
        state=node.state,
        reason=node.reason,
        address=node.address,
        foreign_gpus=foreign.gpus,
        foreign_cpus=foreign.cpus,
        foreign_memory_mib=foreign.memory_mib,
        cpus_per_core=node.cpus_per_core,
    )
