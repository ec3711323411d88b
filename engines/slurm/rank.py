"""One node rank under Slurm: an srun step whose task is the init process on its node."""

import os
import signal
import subprocess
import time
from functools import partial

from engines.attempt_files import AttemptFolder, LaunchFile, read_json
from engines.linux import die_with
from engines.slurm.files import SlurmFiles, SlurmLaunchFile
from engines.supervision.init_process import RankExit, RankStart
from engines.supervision.processes import MARK
from engines.supervision.rank import PACKAGE_PARENT, RANK, SITE_VARIABLES, Rank

OF_THE_JOB = (
    *("SLURM_GPUS", "SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_NODE", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_HOSTFILE"),
    *("SLURM_NTASKS_PER_NODE", "SLURM_DISTRIBUTION", "SLURM_EXPORT_ENV", "SLURM_CPUS_PER_TASK", "SLURM_NNODES"),
)
"""Variables of the batch script that srun would take for options of the step."""
POLL_S = 5.0
FIRST_BEAT_WITHIN_S = 300.0


class SlurmRank(Rank):
    """Starts the rank as a step on its node; follows its heartbeat, as srun does not notice a killed slurmstepd."""

    def __init__(self, number: int, launch: LaunchFile, folder: AttemptFolder) -> None:
        self._files = SlurmFiles(folder)
        site = self._files.read_launch()
        if site is None:
            raise FileNotFoundError(f"{self._files.launch} is missing")
        self._site = site
        self._silent = False
        self._beat = ""
        self._beat_at_s = time.monotonic() + FIRST_BEAT_WITHIN_S - site["silent_after_s"]
        self._polled_at_s = time.monotonic()
        super().__init__(number, launch, folder)

    @property
    def silent_node(self) -> str:
        return self._site["nodes"][self.number].lower() if self._silent else ""

    def start(self, launch: LaunchFile) -> "subprocess.Popen[bytes]":
        env = {name: text for name, text in os.environ.items() if name.startswith("SLURM") and name not in OF_THE_JOB}
        return subprocess.Popen(  # noqa: S603 - our own program, on a node that Slurm gave us
            self._command(),
            bufsize=0,
            cwd=PACKAGE_PARENT,
            env=env | {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", MARK: launch["mark"], RANK: str(self.number)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            # With the supervisor: srun would wait for ever for a rank whose slurmstepd was killed, too.
            preexec_fn=partial(die_with, os.getpid(), signal.SIGKILL),  # noqa: PLW1509 - it has one thread
        )

    def start_input(self, launch: LaunchFile) -> RankStart:
        return RankStart(
            **launch["ranks"][self.number],
            user=launch["user"],
            report=None,
            outcome_file=str(self._files.outcome(self.number)),
            heartbeat_file=str(self._files.heartbeat(self.number)),
            inherit=list(SITE_VARIABLES),
            masked=launch.get("masked", []),
            memory_file=str(self.folder.memory(self.number)),
            ready_file="",
        )

    def read_outcome(self, code: int) -> RankExit:
        outcome: RankExit | None = read_json(self._files.outcome(self.number))
        if outcome is not None:
            return outcome
        self._silent = True
        node = self._site["nodes"][self.number]
        return RankExit(exit_code=137, message=f"The rank on {node} ended without a report (srun exited with {code}).")

    def watch(self) -> None:
        """End the step whose heartbeat has stopped."""
        now_s = time.monotonic()
        if now_s - self._polled_at_s < POLL_S:
            return
        self._polled_at_s = now_s
        if (beat := self._read_beat()) != self._beat:
            self._beat, self._beat_at_s = beat, now_s
        elif now_s - self._beat_at_s > self._site["silent_after_s"]:
            self.kill_init_process()

    def _read_beat(self) -> str:
        try:
            return self._files.heartbeat(self.number).read_text()
        except OSError:
            return self._beat

    def _command(self) -> list[str]:
        step = step_command(self._site, self.number, name=f"rank{self.number}")
        return [*step, "engines.slurm.node_start", str(self.folder.path), str(self.number)]


def step_command(site: SlurmLaunchFile, rank: int, *, name: str, job: int | None = None) -> list[str]:
    """Beginning of a command line that runs a module of ours as a step beside the rank, with its GPUs.

    From outside of the job, for a session, `job` is its number. What a session sends is unbuffered, for which Slurm
    makes its standard output a terminal; that of a rank is a pipe, or programs would write colours and progress bars.
    """
    node, gpus, cpus = site["nodes"][rank], site["gpus"][rank], site["cpus"][rank]
    step = ["srun", "-Q", "-N1", "-n1", "-w", node, "--overlap", "--kill-on-bad-exit=0"]
    step += [f"--jobid={job}", "--unbuffered"] if job is not None else []
    step += ["--mpi=none", "-J", name, f"--cpus-per-task={cpus}"]
    step += [f"--gpus={gpus}"] if gpus else ["--gres=none"]
    if any(site["components"]):
        step.append(f"--het-group={site['components'][rank]}")
    return [*step, site["python"], "-ES", "-m"]
