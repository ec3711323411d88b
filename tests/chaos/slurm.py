"""The campaign on a service over a private Slurm, whose daemons are killed and whose jobs are cancelled there, too."""

import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from engines.protocol import EngineError
from operations.private_slurm import PrivateCluster
from tests.chaos.campaign import Campaign
from tests.chaos.watch import job_processes
from tests.deployment import others, told
from tests.engines.slurm_cluster import NODES, opened_by
from tests.private_servers import free_ports
from tests.service.running_service import Service, a_service

DECLARE = """
from cluster_app.models import Engine, GpuType
from cluster_app.services import add_node
from connections_app.register_machine import gpu_type_columns
Engine.objects.create(name="hpc", kind="slurm", options={options!r})
for name, kind, gpus, cpus, memory_mib in {nodes!r}:
    gpu_type, _ = GpuType.objects.get_or_create(name=kind, defaults=gpu_type_columns(kind))
    add_node(name, gpu_type, gpus=gpus, cpus=cpus, memory_mib=memory_mib, engine="hpc")
"""


class OverSlurm(Campaign):
    """The embedded service with jobs on Slurm."""

    shapes = ({"gpus": 1}, {"gpus": 2}, {"gpus": 6, "gpu_types": ["a100"]}, {"gpus": 3, "gpu_types": ["v100"]})
    # 6 A100 are three on each of two nodes
    retries = 100  # a slurmstepd is killed whoever's it is, and ends a rank

    def __init__(self, service: Service, cluster: PrivateCluster, *, seed: int) -> None:
        super().__init__(service, service.engine_root / "hpc", seed=seed)
        self.running, self.cluster = service, cluster
        self.faults = {
            "scheduler": lambda: self.kill_one(service.schedulers()),
            "slurmctld": self._restart_controller,
            "slurmd": self._restart_node,
            "slurmstepd": lambda: self.kill_one(self._step_daemons()),
            "scancel": self._cancel_in_slurm,
            "supervisor": lambda: self.kill_one(self.with_words(b"engines.slurm.batch")),
            "init process": lambda: self.kill_one(list(self.above_ranks(b"engines.supervision.init_process"))),
            "rank": lambda: self.kill_one([one.pid for one in job_processes(str(self.root))]),
        }

    def prepare(self) -> None:
        conf = str(self.cluster.conf)
        options = {"root": str(self.root), "slurm_conf": conf, "late_disk_s": 5, "search_path": ""}
        nodes = [(node.name, node.gpu_type, node.gpus, node.cpus, node.memory_mib) for node in self.cluster.nodes]
        self.service.python(DECLARE.format(options=options, nodes=nodes))
        self.service.decide_every(1, min_run_s=10)

    def administer(self) -> None:
        """Resume nodes that Slurm drained by itself: it does where it has forgotten a start ("Duplicate jobid")."""
        with suppress(EngineError):
            lines = self.cluster.run("sinfo", "-h", "-N", "-p", "gpu", "-t", "drain", "-o", "%N").split()
            if lines:
                self.cluster.run("scontrol", "update", f"nodename={','.join(lines)}", "state=resume")

    def leftovers(self) -> dict[str, Callable[[], Any]]:
        return {**super().leftovers(), "Slurm jobs": self._in_the_queue}

    def evidence(self) -> list[Path]:
        return [self.running.var, self.running.log, self.cluster.base / "slurmctld.log"]

    def _in_the_queue(self) -> str:
        try:
            return self.cluster.run("squeue", "-h").strip()
        except EngineError as error:
            return str(error)

    def _restart_controller(self) -> bool:
        self.cluster.stop_daemon("slurmctld", signal_number=signal.SIGKILL)
        time.sleep(self.random.uniform(0, 4))
        self.cluster.start_controller()
        return True

    def _restart_node(self) -> bool:
        name = self.random.choice(self.cluster.nodes).name
        self.cluster.stop_daemon(f"slurmd-{name}", signal_number=signal.SIGKILL)
        time.sleep(self.random.uniform(0, 4))
        self.cluster.start_node(name)
        return True

    def _cancel_in_slurm(self) -> bool:
        with suppress(EngineError):
            if numbers := self.cluster.run("squeue", "-h", "-t", "RUNNING,PENDING", "-o", "%A").split():
                self.cluster.run("scancel", self.random.choice(sorted(numbers)))
                return True
        return False

    def _step_daemons(self) -> list[int]:
        spool = str(self.cluster.base)
        return [pid for pid in others() if b"slurmstepd" in told(pid, "cmdline") and spool in opened_by(pid)]


@contextmanager
def private_cluster() -> Iterator[PrivateCluster]:
    """A cluster whose Slurm soon forgets what has ended."""
    base = Path(tempfile.mkdtemp(prefix="slurm-"))
    cluster = PrivateCluster(base, NODES, port=free_ports(len(NODES) + 1), min_job_age_s=30)
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()
        shutil.rmtree(base)


@contextmanager
def over_slurm(seed: int) -> Iterator[OverSlurm]:
    with private_cluster() as cluster, a_service() as service:
        yield OverSlurm(service, cluster, seed=seed)
