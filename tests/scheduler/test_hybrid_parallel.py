"""A hybrid-parallel job runs in whole replicas of several GPUs, and is told so, as is its owner."""

from typing import Any

import pytest

from insight_app.explain.dry_run import dry_run
from insight_app.explain.what_if import what_would_start
from jobs_app.errors import InvalidSpec
from jobs_app.models import Job
from jobs_app.submission.conversion import spec_of
from jobs_app.submission.submit import cloned_spec, submit_job
from scheduler_app.models import PolicySetting
from scheduler_app.round.run_round import read_for_round
from tests.service_lab import UNTIL_LET_GO, Lab

SIZE: dict[str, Any] = {"replicas": {"min": 1, "max": 4}, "gpus_per_replica": {"a100": 2, "v100": 4}}
VARIABLES = ("MOTLEY_REPLICAS", "MOTLEY_GPUS_PER_REPLICA", "MOTLEY_WORLD_SIZE", "PET_NPROC_PER_NODE")


def told(lab: Lab, **spec: Any) -> tuple[str, ...]:
    """What the processes of such a job find in their environment."""
    found = lab.environment(lab.until_state(lab.submit("env", **spec), Job.State.SUCCEEDED))
    return tuple(found[name] for name in VARIABLES)


def test_its_processes_know_the_replicas_and_the_gpus_of_each(lab: Lab) -> None:
    lab.node("a1", "a100", gpus=4)
    assert told(lab, replicas=2, gpus_per_replica=2) == ("2", "2", "4", "4")


def test_the_gpus_of_a_replica_are_those_of_the_type(lab: Lab) -> None:
    lab.node("a1", "a100", gpus=1)
    lab.node("v1", "v100", gpus=8)
    assert told(lab, replicas=2, gpus_per_replica={"a100": 2, "v100": 4}) == ("2", "4", "8", "8")


def test_a_replica_of_other_jobs_is_one_gpu(lab: Lab) -> None:
    lab.node("a1", "a100", gpus=4)
    assert told(lab, gpus=3) == ("3", "1", "3", "3")


def test_it_grows_and_shrinks_by_whole_replicas(lab: Lab) -> None:
    """Of eight GPUs three are taken: one replica of four fits, and two when they are free."""
    lab.policy("max_min_fairness")
    lab.node("v1", "v100", gpus=8)
    first = [lab.submit(UNTIL_LET_GO, name=f"first-{n}") for n in range(3)]
    lab.running(*first)
    rates = {"v100": {4: 10, 8: 18}}
    job = lab.submit(UNTIL_LET_GO, replicas={"min": 1, "max": 2}, gpus_per_replica={"v100": 4}, rates=rates)
    lab.running(job)
    assert [attempt.gpu_count for attempt in lab.attempts(job)] == [4]
    lab.let_go(*first)
    lab.until(lambda: lab.attempts(job)[-1].gpu_count == 8)
    assert lab.attempts(job)[-1].replicas == 2


def test_it_never_gets_a_type_that_holds_no_replica_nor_a_part_of_one(lab: Lab) -> None:
    lab.node("t1", "t4", gpus=8)
    lab.node("v1", "v100", gpus=6)
    job = lab.submit(UNTIL_LET_GO, **SIZE, gpu_types=["v100"])
    lab.running(job)
    (attempt,) = lab.attempts(job)
    assert (attempt.gpu_type.name, attempt.gpu_count, attempt.replicas) == ("v100", 4, 1)


def test_the_dry_run_names_replicas_and_gpus(lab: Lab) -> None:
    lab.node("a1", "a100", gpus=4)
    lab.node("v1", "v100", gpus=8)
    lab.node("t1", "t4", gpus=8)
    planned = dry_run({"name": "net", "command": "true", **SIZE}, owner=lab.user())["options"]
    assert {(option["gpu_type"], option["gpus"], option["replicas"]) for option in planned if option["nodes"]} == {
        ("a100", 2, 1),
        ("a100", 4, 2),
        ("v100", 4, 1),
        ("v100", 8, 2),
    }
    assert [option["reason"] for option in planned if not option["nodes"]] == ["not allowed by the job"]


def test_a_job_that_waits_says_how_many_gpus_its_replicas_need(lab: Lab) -> None:
    lab.node("v1", "v100", gpus=8)
    lab.running(lab.submit(UNTIL_LET_GO, gpus=6, preemptible=False))
    job = lab.submit(replicas=2, gpus_per_replica={"v100": 4})
    lab.round()
    job.refresh_from_db()
    (short,) = [reason for reason in job.reasons if reason["code"] == "insufficient_gpus"]
    assert short["detail"] == "8 V100 (2 replicas of 4) needed; 2 left after the jobs that come first."
    assert short["numbers"]["replicas"] == 2


def test_fewer_replicas_are_proposed_where_these_would_start_it(lab: Lab) -> None:
    lab.node("v1", "v100", gpus=8)
    lab.running(lab.submit(UNTIL_LET_GO, gpus=3, preemptible=False))
    job = lab.submit(replicas=2, gpus_per_replica={"v100": 4})
    lab.round()
    job.refresh_from_db()
    found = {option.kind: option for option in what_would_start(job, lab.now).options}
    assert found["fewer_gpus"].changes == {"replicas": 1}
    assert "1 instead of 2 replicas" in found["fewer_gpus"].detail


@pytest.mark.parametrize(
    ("size", "pointer", "remedy"),
    [
        ({"replicas": 3, "gpus_per_replica": {"v100": 4}}, "/replicas", "2 replicas of 4 V100"),
        ({"replicas": 1, "gpus_per_replica": {"h100": 2}}, "/gpus_per_replica", "there is V100"),
        ({"replicas": 1, "gpus_per_replica": 16}, "/gpus_per_replica", "0 replicas of 16 V100"),
    ],
)
def test_more_than_the_cluster_holds_is_refused_with_what_it_holds(
    lab: Lab, size: dict[str, Any], pointer: str, remedy: str
) -> None:
    lab.node("v1", "v100", gpus=8)
    with pytest.raises(InvalidSpec) as refused:
        lab.submit(**size)
    (fault,) = refused.value.faults
    assert (fault["pointer"], remedy in fault["detail"]) == (pointer, True)


def test_a_clone_may_have_gpus_in_place_of_replicas_and_replicas_in_place_of_gpus(lab: Lab) -> None:
    lab.node("v1", "v100", gpus=8)
    hybrid, plain = lab.submit(replicas=2, gpus_per_replica={"v100": 4}), lab.submit(gpus=2)
    as_plain = submit_job(cloned_spec(spec_of(hybrid), {"gpus": 3}), owner=lab.user())
    as_hybrid = submit_job(cloned_spec(spec_of(plain), {"replicas": 2, "gpus_per_replica": 4}), owner=lab.user())
    assert (as_plain.gpus_min, as_plain.gpus_per_replica) == (3, {})
    assert (as_hybrid.gpus_min, as_hybrid.gpus_per_replica, as_hybrid.replicas) == (8, 4, (2, 2))
    assert submit_job(cloned_spec(spec_of(hybrid)), owner=lab.user()).gpus_per_replica == {"v100": 4}


def test_a_round_reads_what_the_job_said(lab: Lab) -> None:
    lab.node("v1", "v100", gpus=8)
    lab.submit(replicas=2, gpus_per_replica={"v100": 4})
    rows, _ = read_for_round(lab.now, PolicySetting.objects.current(), changed=False)
    (row,) = rows.jobs
    assert (row.gpus_per_replica.on("v100"), row.gpus_per_replica.on("t4")) == (4, 0)
