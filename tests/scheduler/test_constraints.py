"""What the database itself refuses, whatever the code does."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from cluster_app.models import Gpu, GpuType, Node
from jobs_app.models import GpuClaim, Job, JobArray, JobDependency, Team, Throughput
from scheduler_app.models import PolicySetting, Round, SchedulerLease
from tests.service_lab import Lab

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
Write = Callable[[Lab], Any]


@pytest.fixture
def world(lab: Lab) -> Lab:
    """A node with two GPUs; two jobs of which the first is at the engine and holds GPU 0."""
    lab.node("n1", gpus=2)
    for name in ("one", "two"):
        lab.submit(name=name)
    attempt = lab.attempt(job("one"), state="running")
    GpuClaim.objects.create(gpu=Gpu.objects.get(index=0), attempt=attempt, held_from=NOW)
    return lab


def job(name: str) -> Job:
    return Job.objects.get(name=name)


def claim(lab: Lab, gpu: int, **columns: Any) -> GpuClaim:
    """By the second job."""
    attempt = job("two").attempts.first() or lab.attempt(job("two"))
    return GpuClaim.objects.create(gpu=Gpu.objects.get(index=gpu), attempt=attempt, **columns)


def two_waiting_claims(lab: Lab) -> None:
    claim(lab, 0)
    another = lab.submit(name="three")
    GpuClaim.objects.create(gpu=Gpu.objects.get(index=0), attempt=lab.attempt(another))


def ended(**columns: Any) -> dict[str, Any]:
    return {"state": "ended", "outcome": "failed", "ended_at": NOW} | columns


REFUSED: dict[str, Write] = {
    "two holders of a GPU": lambda lab: claim(lab, 0, held_from=NOW),
    "two waiting claims on a GPU": two_waiting_claims,
    "a GPU twice in one attempt": lambda lab: [claim(lab, 1, held_from=NOW), claim(lab, 1)],
    "a claim released before it was held": lambda lab: claim(lab, 1, held_from=NOW, released_at=NOW.replace(hour=1)),
    "two attempts of a job at an engine": lambda lab: lab.attempt(job("one"), state="launching"),
    "two attempts of a job that wait": lambda lab: [lab.attempt(job("two")) for _ in range(2)],
    "an attempt number twice": lambda lab: lab.attempt(job("one"), number=1, **ended()),
    "an attempt without GPUs": lambda lab: lab.attempt(job("two"), gpu_count=0),
    "an attempt in an unknown state": lambda lab: lab.attempt(job("two"), state="thinking"),
    "an ended attempt without an outcome": lambda lab: lab.attempt(job("two"), **ended(outcome="")),
    "an ended attempt without its end": lambda lab: lab.attempt(job("two"), **ended(ended_at=None)),
    "an unknown outcome": lambda lab: lab.attempt(job("two"), **ended(outcome="bored")),
    "an unknown choice of CPUs and memory": lambda lab: lab.attempt(job("two"), cpu_memory="guessed"),
    "an outcome of what still runs": lambda lab: lab.attempt(job("two"), outcome="failed"),
    "an attempt gone while it runs": lambda lab: lab.attempt(job("two"), state="running", gone_at=NOW),
    "a job in an unknown state": lambda _: Job.objects.update(state="thinking"),
    "a held job that runs": lambda _: Job.objects.filter(name="one").update(state="running", held=True),
    "a final job without its end": lambda _: Job.objects.update(state="failed"),
    "an unfinished job with an end": lambda _: Job.objects.update(finished_at=NOW),
    "a job without weight": lambda _: Job.objects.update(weight=0),
    "a job of negative weight": lambda _: Job.objects.update(weight=-1),
    "a job without a name": lambda _: Job.objects.update(name=""),
    "a job without GPUs": lambda _: Job.objects.update(gpus_min=0),
    "a gang with more at least than at most": lambda _: Job.objects.update(gpus_min=3, gpus_max=2),
    "an array index without an array": lambda _: Job.objects.update(array_index=1),
    "an array that ends before it starts": lambda _: JobArray.objects.create(start=2, end=1),
    "an array that never moves on": lambda _: JobArray.objects.create(start=0, end=1, at_a_time=0),
    "a job that waits for itself": lambda _: JobDependency.objects.create(child=job("one"), parent=job("one")),
    "a team without weight": lambda _: Team.objects.update(weight=0),
    "a GPU type without memory": lambda _: GpuType.objects.update(memory_mib=0),
    "a GPU type of negative price": lambda _: GpuType.objects.update(price_per_hour=-1),
    "a cordoned node without a reason": lambda _: Node.objects.update(state="cordoned"),
    "a node in an unknown state": lambda _: Node.objects.update(state="asleep", reason="x"),
    "a node of unknown health": lambda _: Node.objects.update(health="tired"),
    "a node without CPUs": lambda _: Node.objects.update(cpus=0),
    "a GPU slot twice": lambda _: Gpu.objects.create(node=Node.objects.get(), index=1),
    "a GPU's UUID twice": lambda _: Gpu.objects.update(uuid="GPU-1"),
    "a GPU beyond the last slot": lambda _: Gpu.objects.create(node=Node.objects.get(), index=64),
    "the lease of an unknown loop": lambda _: SchedulerLease.objects.create(pk=3),
    "a round with an unknown result": lambda _: Round.objects.create(
        number=1, started_at=NOW, shares_since=NOW, result="maybe"
    ),
    "rounds of no length": lambda _: PolicySetting.objects.update(round_length_s=0),
    "a time limit of nothing": lambda _: PolicySetting.objects.update(solve_limit_part=0),
    "a time limit of more than a round": lambda _: PolicySetting.objects.update(solve_limit_part=1.5),
    "an unknown rule for CPUs and memory": lambda _: PolicySetting.objects.update(cpu_memory="opt"),
    "a rate below zero": lambda _: Throughput.objects.create(
        team=Team.objects.get(), workload="w", gpu_type=GpuType.objects.get(), gpus=1, nodes=1, steps_per_second=-1
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_the_database_refuses(world: Lab, what: str) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        REFUSED[what](world)


def test_a_gpu_has_one_holder_and_one_heir(world: Lab) -> None:
    claim(world, 0)
    assert GpuClaim.objects.open().filter(gpu__index=0).count() == 2


def test_a_released_gpu_is_held_again(world: Lab) -> None:
    GpuClaim.objects.update(released_at=NOW)
    assert claim(world, 0, held_from=NOW).pk


def test_a_job_that_moves_has_one_attempt_at_the_engine_and_one_that_waits(world: Lab) -> None:
    world.attempt(job("one"))
    assert job("one").attempts.live().count() == 2
