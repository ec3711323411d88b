"""The service over a Slurm cluster: placed jobs, and what the site does to them."""

from typing import Any

import pytest

from cluster_app.models import Engine, Node, NodeEvent, NodePower
from cluster_app.services import drain, put_to_sleep, resume
from jobs_app.models import Attempt, GpuClaim, Job, Reason
from operations.private_slurm import PrivateCluster
from scheduler_app.round.attempt_reports import WITHDRAW_AFTER
from tests.service_lab import UNTIL_LET_GO, Lab

State = Job.State
pytestmark = pytest.mark.xdist_group("slurm")


def slurm_job_of(site: PrivateCluster, attempt: Attempt) -> str:
    lines = site.run("squeue", "-h", "-t", "RUNNING", "-o", "%A %j").splitlines()
    return next(line.split()[0] for line in lines if line.endswith(f"-{attempt.pk}"))


def test_a_job_runs_where_the_round_placed_it(lab: Lab, site: PrivateCluster) -> None:
    job = lab.until_state(
        lab.submit("echo on $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES", gpus=2, gpu_types=["v100"]), State.SUCCEEDED
    )
    attempt = lab.attempts(job)[0]
    assert (attempt.engine, attempt.nodes, attempt.devices) == ("hpc", ["n3"], {"n3": "0,1"})
    assert lab.output(job) == "on n3 0,1\n"
    lab.until(lambda: not GpuClaim.objects.open().exists())


def test_a_job_that_an_administrator_cancels_in_slurm_is_queued_again_and_goes_on(
    lab: Lab, site: PrivateCluster
) -> None:
    job = lab.submit(UNTIL_LET_GO)
    lab.running(job)
    number = slurm_job_of(site, lab.attempts(job)[0])
    lab.until(lambda: lab.attempts(job)[0].site_job == number)
    site.run("scancel", number)
    lab.until(lambda: len(lab.attempts(job)) == 2)
    lab.running(job)
    lab.let_go(job)
    lab.until_state(job, State.SUCCEEDED)
    first = lab.attempts(job)[0]
    assert first.outcome == Attempt.Outcome.PREEMPTED
    assert "cancelled in Slurm" in first.message
    job.refresh_from_db()
    assert job.failures == 0


def test_a_controller_that_is_away_costs_no_job(lab: Lab, site: PrivateCluster) -> None:
    running = lab.submit(UNTIL_LET_GO)
    lab.running(running)
    site.stop_daemon("slurmctld")
    try:
        waiting = lab.submit("true")
        lab.round()
        lab.round()
        assert Engine.objects.get(name="hpc").fault
    finally:
        site.start_controller()
    lab.until_state(waiting, State.SUCCEEDED)
    lab.let_go(running)
    lab.until_state(running, State.SUCCEEDED)
    assert [len(lab.attempts(job)) for job in (running, waiting)] == [1, 1]


def test_a_node_drained_in_motley_is_drained_in_slurm_and_back_after_its_resumption(
    lab: Lab, site: PrivateCluster
) -> None:
    Engine.objects.update_or_create(name="hpc", defaults={"options": {**options_of("hpc"), "drain": True}})
    running = lab.submit(UNTIL_LET_GO, gpu_types=["v100"])
    lab.running(running)
    node = Node.objects.get(name="n3")
    drain(node, reason="bad fan", actor=None)  # a scheduler that is killed here finds it in the row
    lab.until(lambda: "bad fan" in site.run("scontrol", "show", "node", "n3"))
    lab.until_state(running, State.QUEUED)
    lab.until(lambda: Node.objects.get(name="n3").engine_reason)
    resume(node, actor=None)
    lab.until(lambda: "DRAIN" not in site.run("scontrol", "show", "node", "n3"))
    lab.running(running)
    lab.let_go(running)
    lab.until_state(running, State.SUCCEEDED)


def test_a_node_that_is_not_needed_is_powered_down_in_slurm_and_up_for_a_job(lab: Lab, site: PrivateCluster) -> None:
    Engine.objects.filter(name="hpc").update(options={**options_of("hpc"), "power_saving": True})
    lab.tick()
    node = Node.objects.get(name="n3")
    assert put_to_sleep(node, reason="not needed", now=lab.now)
    lab.until(lambda: "POWERED_DOWN" in site.run("scontrol", "show", "node", "n3"))
    lab.until(lambda: NodePower.objects.exclude(done_at=None).exclude(silent_at=None).exists())
    node.refresh_from_db()
    assert (node.state, node.health) == (Node.State.SLEEPING, Node.Health.HEALTHY)
    job = lab.submit("true", gpu_types=["v100"])
    lab.until_state(job, State.SUCCEEDED)
    assert lab.attempts(job)[0].nodes == ["n3"]
    kinds = NodeEvent.objects.filter(node=node).order_by("pk").values_list("kind", flat=True)
    assert [kind for kind in kinds if kind in ("slept", "woken", "awake")] == ["slept", "woken", "awake"]


def options_of(engine: str) -> dict[str, Any]:
    return dict(Engine.objects.get(name=engine).options)


def test_a_job_that_slurm_holds_back_says_why_and_is_placed_anew(lab: Lab, site: PrivateCluster) -> None:
    later = ("user=root", "starttime=now+1hour", "duration=60", "nodes=n3")  # nothing without a limit may run into it
    site.run("scontrol", "create", "reservation", "reservationname=later", *later)
    job = lab.submit("true", gpu_types=["v100"])
    lab.until(lambda: "Slurm has not started it" in Job.objects.get(pk=job.pk).message)
    assert Job.objects.get(pk=job.pk).reason == Reason.SITE_QUEUE
    lab.ahead += WITHDRAW_AFTER
    lab.until(lambda: Attempt.objects.filter(job=job, state=Attempt.State.ENDED).exists())
    assert lab.attempts(job)[0].stop_reason == Attempt.StopReason.WITHDRAW
    site.run("scontrol", "delete", "reservationname=later")
    lab.until_state(job, State.SUCCEEDED)
    assert job.failures == 0


def test_a_job_is_not_placed_where_jobs_of_others_leave_it_no_cpus(lab: Lab, site: PrivateCluster) -> None:
    foreign = site.run("sbatch", "--parsable", "-w", "n3", "-c", "13", "-o", "/dev/null", "--wrap", "sleep 600").strip()
    lab.until(lambda: Node.objects.get(name="n3").foreign_cpus == 13)
    job = lab.submit("true", gpu_types=["v100"], cpus_per_gpu=4)
    lab.round()
    lab.round()
    job.refresh_from_db()
    assert (job.state, job.attempt_count, job.reason) == (State.QUEUED, 0, Reason.FRAGMENTED)
    assert job.message == (
        "3 V100 are left, but the CPUs or the memory beside them are used: 1 are needed on one node, "
        "and what is left serves at most 0 on any."
    )
    lab.until_state(lab.submit("true", gpu_types=["v100"], cpus_per_gpu=3), State.SUCCEEDED)
    site.run("scancel", foreign)
    lab.until_state(job, State.SUCCEEDED)
