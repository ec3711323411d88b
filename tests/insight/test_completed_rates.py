"""Rates of a workload on types where it never ran are completed from those of other workloads, of any team."""

import pytest
from django.utils import timezone

from cluster_app.models import GpuType
from estimation.gpu_specifications import GPU_SPECIFICATIONS
from insight_app.explain.decisions import explain_job
from insight_app.explain.dry_run import dry_run
from jobs_app.models import Job, Throughput
from scheduler_app.round.known_workloads import MOST_WORKLOADS, KnownRate, rate_factors
from tests.service_lab import Lab

REPORTING = (
    'n=0; while [ ! -e "$MOTLEY_CHECKPOINT_DIR/go" ]; do n=$((n+1)); echo "{\\"step\\": $n}" >> $MOTLEY_PROGRESS; '
    "sleep 0.05; done"
)
"""Reports steps until the test lets it go."""


@pytest.fixture
def cluster(lab: Lab) -> Lab:
    """Three times as fast on a T4 as on an A100 are the workloads of another team; the specifications say otherwise."""
    lab.node("n1", "a100", gpus=1)
    lab.node("n2", "t4", gpus=1)
    language, types = lab.team("language"), {kind.name: kind for kind in GpuType.objects.all()}
    for number in range(8):
        for name, rate in (("a100", 2.0**number), ("t4", 3 * 2.0**number)):
            Throughput.objects.create(
                team=language,
                workload=f"secret-{number}",
                gpu_type=types[name],
                gpus=1,
                nodes=1,
                steps_per_second=rate,
                reports=10,
            )
    return lab


@pytest.fixture
def first(cluster: Lab) -> Job:
    """The first job of a workload of which nothing is declared; it ran on an A100, and nowhere else."""
    job = cluster.submit(REPORTING, name="first", workload="new", gpu_types=["a100"])
    cluster.until(lambda: Throughput.objects.filter(workload="new", reports__gte=3).exists())
    cluster.let_go(job)
    cluster.until_state(job, Job.State.SUCCEEDED)
    return job


def test_the_second_job_of_a_workload_starts_on_the_type_that_is_right_for_it(cluster: Lab, first: Job) -> None:
    second = cluster.submit("sleep 1000", name="second", workload="new")
    cluster.running(second)
    assert cluster.attempts(second)[0].gpu_type.name == "t4"
    sources = {rate["gpu_type"]: rate["source"] for rate in explain_job(second, timezone.now())["rates_used"]}
    assert sources == {"a100": "measured", "t4": "completed"}


def test_rates_that_are_of_other_workloads_alone_are_not_told_of_a_job_without_steps(cluster: Lab, first: Job) -> None:
    silent, second = cluster.submit("sleep 1000", workload="unheard"), cluster.submit("sleep 1000", workload="new")
    cluster.round()
    told = {}
    for job in (silent, second):
        rates = explain_job(job, timezone.now())["rates_used"]
        told[job.workload] = {rate["source"]: rate["rate"] is not None for rate in rates}
    assert told == {"unheard": {"assumed": False}, "new": {"measured": True, "completed": True}}


def test_the_dry_run_has_the_rates_of_the_round(cluster: Lab, first: Job) -> None:
    second = cluster.submit("sleep 1000", name="second", workload="new")
    cluster.running(second)
    used = {
        rate["gpu_type"]: (rate["rate"], rate["source"]) for rate in explain_job(second, timezone.now())["rates_used"]
    }
    planned = dry_run({"name": "third", "command": "true", "gpus": 1, "workload": "new"}, owner=cluster.user())
    assert {option["gpu_type"]: (option["rate"], option["source"]) for option in planned["options"]} == used


def test_a_sweep_of_one_team_leaves_room_for_the_workloads_of_another() -> None:
    sweep = [KnownRate(1, f"sweep-{n}", 0, kind, 1, 1, 1.0) for n in range(2 * MOST_WORKLOADS) for kind in (10, 11)]
    of_another = [KnownRate(2, f"other-{n}", 0, kind, 1, 1, 1.0) for n in range(3) for kind in (10, 12)]
    specs = [GPU_SPECIFICATIONS[name].spec for name in ("v100", "a100", "t4")]
    factors = rate_factors([*sweep, *of_another], (10, 11, 12), specs)
    assert factors is not None
    assert factors.supported.tolist() == [True, True, True]


def test_a_workload_of_which_several_batches_were_measured_tells_nothing_of_the_types(cluster: Lab) -> None:
    for number, row in enumerate(Throughput.objects.order_by("pk")):
        Throughput.objects.filter(pk=row.pk).update(batch_size=number)
    job = cluster.submit("sleep 1000")
    cluster.running(job)
    assert {rate["source"] for rate in explain_job(job, timezone.now())["rates_used"]} == {"assumed"}
