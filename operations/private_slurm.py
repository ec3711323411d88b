"""Private Slurm cluster on one machine, for the demo and the tests: munged, slurmctld, and one slurmd per node.

GPUs are emulated by character devices that exist everywhere and that nobody opens. Needs the Debian packages
`PACKAGES`; works as root and as an ordinary user.
"""

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from engines.protocol import EngineError
from engines.slurm.commands import SEARCH_PATH

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "scancel")
READY_WITHIN_S = 60.0
LAST_TTY = 63
UP = frozenset({"idle", "mixed", "allocated", "completing", "draining", "drained"})
"""States of nodes that answer."""
CONF = """\
ClusterName=motley
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={base}/munge.socket
CredType=cred/munge
SlurmctldPort={port}
SlurmctldPidFile={base}/slurmctld.pid
SlurmdPidFile={base}/slurmd-%n.pid
SlurmctldLogFile={base}/slurmctld.log
SlurmdLogFile={base}/slurmd-%n.log
StateSaveLocation={base}/state
SlurmdSpoolDir={base}/spool-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=10
KillWait=5
MinJobAge={min_job_age_s}
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
GresTypes=gpu
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
{accounting}
JobCompType=jobcomp/none
SuspendProgram={base}/suspend
ResumeProgram={base}/resume
SuspendTime=31536000
SuspendTimeout=1
ResumeTimeout=60
SuspendRate=0
ResumeRate=0
"""
"""Nodes are powered down only when Slurm is told to."""
POWER_PROGRAMS = {
    "suspend": (
        'pid=$(cat {base}/slurmd-$node.pid) && kill "$pid"\n'
        '  while grep -qs "^State:.[^ZX]" "/proc/$pid/status"; do sleep 0.1; done'
    ),
    "resume": "slurmd -N $node -b 9>&-",
}
"""What Slurm runs for each node that is powered down or up: a machine is its slurmd.

Slurm may ask for the node again before its slurmd has gone, which has the node's port until then: the two take turns.
"""
POWER_SCRIPT = """\
#!/bin/sh
export PATH={path} LANG=C.UTF-8
exec 9>{base}/power.lock </dev/null >/dev/null 2>&1
flock 9
for node in $(scontrol show hostnames "$1"); do
  {program}
done
"""


@dataclass(frozen=True)
class EmulatedNode:
    """Node of a private cluster."""

    name: str
    gpu_type: str
    gpus: int
    cpus: int = 16
    memory_mib: int = 8000


def missing_programs() -> list[str]:
    """Programs of Slurm that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name, path=SEARCH_PATH) is None]


class PrivateCluster:
    """A cluster whose files lie in `base`, a short path; `port` and those above it are free.

    Its accounting, if it has one, is a slurmdbd of the caller's at `accounting_port`, with the cluster's munge.
    """

    def __init__(
        self,
        base: Path,
        nodes: Sequence[EmulatedNode],
        *,
        port: int,
        min_job_age_s: int = 300,
        accounting_port: int | None = None,
    ) -> None:
        self.base = base.resolve()
        self.nodes = nodes
        self.conf = self.base / "slurm.conf"
        self._port = port
        self._min_job_age_s = min_job_age_s
        self._accounting_port = accounting_port
        self._env = {"PATH": SEARCH_PATH, "SLURM_CONF": str(self.conf), "LANG": "C.UTF-8"}

    def up(self) -> None:
        """Start the daemons that do not run, and wait until every node answers."""
        if missing := missing_programs():
            raise EngineError(f"{', '.join(missing)} not found: install the packages {' '.join(PACKAGES)}.")
        self.start_munge()
        if self.pid_of("slurmctld") is None:
            self.start_controller()
        for node in self.nodes:
            if self.pid_of(f"slurmd-{node.name}") is None:
                self.start_node(node.name)
        self._wait_until_up()

    def down(self) -> None:
        """End all jobs and daemons."""
        with suppress(EngineError):
            self.run("scancel", "--full", "--signal=KILL", "-u", _user_name())
        for path in [*self.base.glob("slurmd-*.pid"), self.base / "slurmctld.pid", self.base / "munged.pid"]:
            self.stop_daemon(path.stem)

    def start_munge(self) -> None:
        """Write the files of the cluster, and start the daemon with which all others prove who they are."""
        if self.pid_of("munged") is None:
            self._write_files()
            self._start("munged", "--force", *self._munge_files())

    def start_controller(self) -> None:
        self._start("slurmctld")

    def start_node(self, name: str) -> None:
        self._start("slurmd", "-N", name)

    def stop_daemon(self, name: str, *, signal_number: int = signal.SIGTERM) -> None:
        """Signal a daemon (`slurmctld`, `slurmd-n1`, `munged`) and wait for its end."""
        pid = self.pid_of(name)
        if pid is None:
            return
        with suppress(ProcessLookupError):
            os.kill(pid, signal_number)
        give_up_at_s = time.monotonic() + READY_WITHIN_S
        while _lives(pid) and time.monotonic() < give_up_at_s:
            time.sleep(0.02)
        (self.base / f"{name}.pid").unlink(missing_ok=True)

    def pid_of(self, name: str) -> int | None:
        """Process id of a daemon; None if it does not run."""
        try:
            pid = int((self.base / f"{name}.pid").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return pid if _lives(pid) else None

    def run(self, *argv: str) -> str:
        """Output of one of Slurm's commands."""
        done = subprocess.run(  # noqa: S603 - our own words
            argv, capture_output=True, text=True, env=self._env, check=False
        )
        if done.returncode:
            raise EngineError(f"{argv[0]} said: {done.stderr.strip()}")
        return done.stdout

    def _start(self, *argv: str) -> None:
        """Start a daemon, which detaches itself."""
        done = subprocess.run(  # noqa: S603 - our own words
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=self._env,
            cwd=self.base,
            check=False,
        )
        if done.returncode:
            raise EngineError(f"{argv[0]} could not be started: {done.stderr.strip()[-1000:]}")

    def _munge_files(self) -> list[str]:
        names = {"key-file": "munge/munge.key", "socket": "munge.socket", "pid-file": "munged.pid"}
        names |= {"log-file": "munged.log", "seed-file": "munge/seed"}
        return [f"--{option}={self.base / name}" for option, name in names.items()]

    def _write_files(self) -> None:
        for name, mode in (("", 0o755), ("munge", 0o700), ("state", 0o755)):
            (self.base / name).mkdir(parents=True, exist_ok=True)
            (self.base / name).chmod(mode)
        key = self.base / "munge" / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(1024))
        nodes, gres = self._node_lines()
        names = ",".join(node.name for node in self.nodes)
        partition = f"PartitionName=gpu Nodes={names} Default=YES MaxTime=INFINITE State=UP PriorityTier=1\n"
        partition += f"PartitionName=urgent Nodes={names} MaxTime=INFINITE State=UP PriorityTier=10\n"
        host = socket.gethostname().split(".")[0]
        head = CONF.format(
            host=host,
            user=_user_name(),
            base=self.base,
            port=self._port,
            min_job_age_s=self._min_job_age_s,
            accounting=self._accounting_lines(),
        )
        self.conf.write_text(head + nodes + partition)
        self._write_power_programs()
        (self.base / "gres.conf").write_text(gres)
        (self.base / "cgroup.conf").write_text("CgroupAutomount=no\n")
        for path in self.base.glob("*.conf"):
            path.chmod(0o644)  # whatever the umask: every user may submit jobs

    def _write_power_programs(self) -> None:
        for name, program in POWER_PROGRAMS.items():
            path = self.base / name
            path.write_text(
                POWER_SCRIPT.format(path=SEARCH_PATH, base=self.base, program=program.format(base=self.base))
            )
            path.chmod(0o755)

    def _accounting_lines(self) -> str:
        if self._accounting_port is None:
            return "AccountingStorageType=accounting_storage/none"
        return (
            "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n"
            f"AccountingStoragePort={self._accounting_port}\nAccountingStorageTRES=gres/gpu,gres/gpu:a100\nAccountingStoragePass={self.base}/munge.socket"
        )

    def _node_lines(self) -> tuple[str, str]:
        """Lines of slurm.conf and of gres.conf for the nodes."""
        host, nodes, gres, tty = socket.gethostname().split(".")[0], "", "", 1
        for number, node in enumerate(self.nodes, 1):
            (self.base / f"spool-{node.name}").mkdir(exist_ok=True)
            tty = tty if tty + node.gpus <= LAST_TTY else 1
            of_gpus = f" Gres=gpu:{node.gpu_type}:{node.gpus}" if node.gpus else ""
            nodes += f"NodeName={node.name} NodeHostname={host} NodeAddr=127.0.0.1 Port={self._port + number} "
            nodes += f"CPUs={node.cpus} RealMemory={node.memory_mib}{of_gpus} State=UNKNOWN\n"
            if node.gpus:
                files = f"/dev/tty[{tty}-{tty + node.gpus - 1}]" if node.gpus > 1 else f"/dev/tty{tty}"
                gres += f"NodeName={node.name} Name=gpu Type={node.gpu_type} File={files}\n"
                tty += node.gpus
        return nodes, gres

    def _wait_until_up(self) -> None:
        give_up_at_s = time.monotonic() + READY_WITHIN_S
        states: list[str] = []
        while time.monotonic() < give_up_at_s:
            with suppress(EngineError):
                states = self.run("sinfo", "-h", "-N", "-p", "gpu", "-o", "%T").split()
                if len(states) == len(self.nodes) and set(states) <= UP:
                    return
            time.sleep(0.1)
        raise EngineError(f"The nodes are {', '.join(states) or 'not reported'} after {READY_WITHIN_S:g} s.")


def _lives(pid: int) -> bool:
    """Whether the process runs; a zombie, which the machine's process 1 may be slow to reap, does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def _user_name() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name
