"""A private Slurm cluster for all tests of a process."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from operations.private_slurm import EmulatedNode, PrivateCluster, missing_programs
from tests.private_servers import free_ports

NODES = [EmulatedNode("n1", "a100", 4), EmulatedNode("n2", "a100", 4), EmulatedNode("n3", "v100", 4)]
END_OF_LOG = 4000


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[PrivateCluster]:
    """A private Slurm cluster for all tests of this process."""
    if missing_programs() and os.environ.get("CI") != "true":
        pytest.skip("Slurm is not installed: apt-get install slurmctld slurmd slurm-client munge")
    base = Path(tempfile.mkdtemp(prefix="slurm-"))
    cluster = PrivateCluster(base, NODES, port=free_ports(len(NODES) + 1), min_job_age_s=3600)
    try:
        cluster.up()
        yield cluster
    finally:  # also of one that did not come up
        cluster.down()
        shutil.rmtree(base)


def restore(cluster: PrivateCluster) -> None:
    """Undo what a test that failed has left: reservations, and nodes that are off, down or drained."""
    for line in cluster.run("scontrol", "-o", "show", "reservations").splitlines():
        if line.startswith("ReservationName="):
            cluster.run("scontrol", "delete", line.split()[0].lower())
    for line in cluster.run("sinfo", "-h", "-N", "-p", "gpu", "-o", "%N %T").splitlines():
        name, state = line.split()
        if state.startswith(("down", "drain")):
            cluster.run("scontrol", "update", f"nodename={name}", "state=resume")
        if state.endswith("~"):
            cluster.run("scontrol", "update", f"nodename={name}", "state=power_up")
    cluster.up()


def ends_of_logs(cluster: PrivateCluster) -> str:
    """What the daemons said last: Slurm's commands do not tell why it ended a job."""
    logs = sorted(cluster.base.glob("slurm*.log"))
    return "\n".join(f"{log.name}:\n{log.read_text(errors='replace')[-END_OF_LOG:]}" for log in logs)


def opened_by(pid: int) -> str:
    """The files that a process has open: a slurmstepd is told by them from those of another cluster."""
    with suppress(OSError):
        return " ".join(os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir())  # noqa: PTH115
    return ""
