"""The service on a private Slurm cluster: its engine is added, tested, its nodes taken over, and a job runs there."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_app.models import Engine, Node
from connections_app.models import EngineProbe
from connections_app.probe import ask_for_probe
from connections_app.sync_nodes import sync_nodes
from jobs_app.models import Job
from operations.private_slurm import PrivateCluster
from scheduler_app.models import PolicySetting
from scheduler_app.policy.settings import choose_policy
from tests.deployment import wait_for
from tests.service_lab import Lab

pytestmark = pytest.mark.xdist_group("slurm")


@pytest.fixture
def hpc(lab: Lab, slurm_cluster: PrivateCluster) -> Iterator[Engine]:
    root = Path(tempfile.mkdtemp(prefix="motley-slurm-"))
    root.chmod(0o755)
    options = {"root": str(root), "slurm_conf": str(slurm_cluster.conf), "late_disk_s": 5}
    yield Engine.objects.create(name="hpc", kind=Engine.Kind.SLURM, options=options)
    if left := slurm_cluster.run("squeue", "-h", "-o", "%A").split():
        slurm_cluster.run("scancel", *left)
    wait_for("no job is left on the cluster that tests share", lambda: not slurm_cluster.run("squeue", "-h").strip())
    shutil.rmtree(root)


def test_an_engine_is_tested_then_its_nodes_are_taken_over_and_run_a_job(lab: Lab, hpc: Engine) -> None:
    probe = ask_for_probe(hpc, actor=None)
    lab.until(lambda: EngineProbe.objects.filter(pk=probe.pk).exclude(ended_at=None).first())
    probe.refresh_from_db()
    assert probe.passed, (probe.message, probe.log)
    hpc.refresh_from_db()
    assert sorted(sync_nodes(hpc, actor=None)) == [
        "Node n1 was added: 4 x a100",
        "Node n2 was added: 4 x a100",
        "Node n3 was added: 4 x v100",
    ]
    job = lab.submit("hostname; echo $SLURMD_NODENAME", gpu_types=["v100"], gpus=2)
    lab.until_state(job, Job.State.SUCCEEDED)
    assert job.attempts.get().nodes == ["n3"]
    assert "n3" in lab.output(job)
    assert set(Node.objects.values_list("health", flat=True)) == {"healthy"}


def test_no_job_that_motley_placed_waits_at_slurm_for_cpus_that_another_has_booked(
    lab: Lab, hpc: Engine, slurm_cluster: PrivateCluster
) -> None:
    """On a node of 4 GPUs a hungry job has what a modest one leaves; the GPUs that are idle keep their shares."""
    choose_policy(PolicySetting(policy="fifo", cpu_memory="tune", round_length_s=1, min_run_s=0), actor=None)
    probe = ask_for_probe(hpc, actor=None)
    lab.until(lambda: EngineProbe.objects.filter(pk=probe.pk).exclude(ended_at=None).first())
    hpc.refresh_from_db()
    sync_nodes(hpc, actor=None)
    cpus = Node.objects.get(name="n3").cpus
    share = cpus // 4
    hungry = {"cpu_curve": {1: 0.1, share: 1.0, cpus: 4.0}}
    specs = [{"sensitivity": hungry}, {"sensitivity": {"cpu_curve": {1: 1.0}}}]
    jobs = [lab.submit("sleep 3600", name=f"job-{i}", gpu_types=["v100"], **spec) for i, spec in enumerate(specs)]
    lab.running(*jobs)
    later = [lab.submit("sleep 3600", name=f"later-{i}", gpu_types=["v100"]) for i in range(2)]
    lab.running(*later)
    given = [lab.attempts(job)[0].cpus_per_gpu for job in (*jobs, *later)]
    assert given == [2 * share - 1, 1, share, share]
    booked = slurm_cluster.run("squeue", "-h", "-t", "RUNNING", "-w", "n3", "-o", "%C").split()
    assert sorted(map(int, booked)) == sorted(given)
