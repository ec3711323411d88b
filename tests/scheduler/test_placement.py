"""Where jobs run: on the GPUs that suit them best, in whole gangs; waiting jobs have reasons with numbers."""

from typing import Any

from cluster_app.services import cordon
from jobs_app.models import Job, Reason
from scheduler_app.models import Round
from tests.service_lab import UNTIL_LET_GO, Lab

State = Job.State


def waits(lab: Lab, job: Job) -> Job:
    """The job after a round in which it was left waiting."""
    lab.round()
    job.refresh_from_db()
    assert job.state == State.QUEUED
    return job


def numbers(job: Job, code: Reason) -> dict[str, float | str]:
    found: dict[str, float | str] = next(reason["numbers"] for reason in job.reasons if reason["code"] == code)
    return found


def test_a_job_runs_and_succeeds(lab: Lab) -> None:
    lab.node("n1")
    job = lab.until_state(lab.submit("echo hello"), State.SUCCEEDED)
    assert lab.output(job) == "hello\n"


def test_a_job_starts_on_the_type_that_is_faster_for_it(lab: Lab) -> None:
    lab.node("n1", "t4")
    lab.node("n2", "a100")
    job = lab.submit(UNTIL_LET_GO, rates={"t4": 20, "a100": 10})
    lab.running(job)
    assert lab.attempts(job)[0].gpu_type.name == "t4"


def test_each_job_gets_the_type_on_which_it_gains_most(lab: Lab) -> None:
    lab.node("n1", "t4", gpus=1)
    lab.node("n2", "a100", gpus=1)
    even = lab.submit(UNTIL_LET_GO, name="even", rates={"t4": 10, "a100": 11})
    keen = lab.submit(UNTIL_LET_GO, name="keen", rates={"t4": 10, "a100": 90})
    lab.running(even, keen)
    assert [lab.attempts(job)[0].gpu_type.name for job in (even, keen)] == ["t4", "a100"]


def test_only_allowed_types_are_used(lab: Lab) -> None:
    lab.node("n1", "t4")
    lab.node("n2", "a100")
    job = lab.submit(UNTIL_LET_GO, gpu_types=["t4"], rates={"t4": 1, "a100": 100})
    lab.running(job)
    assert lab.attempts(job)[0].nodes == ["n1"]


def test_an_elastic_job_alone_gets_the_whole_node(lab: Lab) -> None:
    lab.node("n1", gpus=4)
    job = lab.submit(UNTIL_LET_GO, gpus={"min": 1, "max": 4}, rates={"a100": {1: 10, 2: 18, 4: 30}})
    lab.running(job)
    assert len(lab.gpus_held(job)) == 4


def test_two_elastic_jobs_share_a_node(lab: Lab) -> None:
    lab.node("n1", gpus=4)
    spec: dict[str, Any] = {"gpus": {"min": 1, "max": 4}, "rates": {"a100": {1: 10, 2: 18, 4: 30}}}
    jobs = [lab.submit(UNTIL_LET_GO, name=name, **spec) for name in ("one", "two")]
    lab.running(*jobs)
    assert [len(lab.gpus_held(job)) for job in jobs] == [2, 2]


# -- waiting jobs ------------------------------------------------------------------------------------------------


def test_too_few_gpus_are_counted(lab: Lab) -> None:
    lab.node("n1", gpus=3)
    lab.running(lab.submit(UNTIL_LET_GO, gpus=2, preemptible=False))
    job = waits(lab, lab.submit(gpus=2))
    assert numbers(job, Reason.INSUFFICIENT_GPUS) == {"gpu_type": "a100", "needed": 2, "left": 1}


def test_scattered_gpus_are_counted(lab: Lab) -> None:
    for name in ("n1", "n2"):
        lab.node(name, gpus=2, cpus=4)
    lab.running(*(lab.submit(UNTIL_LET_GO, cpus_per_gpu=4, preemptible=False) for _ in range(2)))
    job = waits(lab, lab.submit(gpus=2))
    assert job.reason == Reason.FRAGMENTED
    assert numbers(job, Reason.FRAGMENTED)["largest_block"] == 1


def test_the_teams_limit_is_counted(lab: Lab) -> None:
    lab.node("n1")
    lab.team("vision", max_gpus=1)
    lab.running(lab.submit(UNTIL_LET_GO, preemptible=False))
    job = waits(lab, lab.submit())
    assert job.reason == Reason.TEAM_LIMIT
    assert numbers(job, Reason.TEAM_LIMIT) == {"limit": 1, "used": 1, "needed": 1}
    assert job.message.startswith("The limit of its team on GPUs at once is 1: 1 in use, and this job needs 1.")


def test_the_limit_of_one_member_leaves_the_others_room(lab: Lab) -> None:
    lab.node("n1")
    lab.team("vision", max_gpus_per_member=1)
    lab.running(lab.submit(UNTIL_LET_GO, preemptible=False))
    mine, theirs = lab.submit(UNTIL_LET_GO), lab.submit(UNTIL_LET_GO, owner=lab.user("bob"))
    lab.running(theirs)
    assert waits(lab, mine).reason == Reason.MEMBER_LIMIT
    assert mine.message.startswith("The limit of each member of its team on GPUs at once is 1: its owner has 1 in use")


def test_the_headline_is_the_first_reason_in_words(lab: Lab) -> None:
    lab.node("n1", gpus=1)
    lab.running(lab.submit(UNTIL_LET_GO, preemptible=False))
    job = waits(lab, lab.submit())
    assert job.message == job.reasons[0]["detail"] == "1 A100 needed; 0 left after the jobs that come first."


def test_the_headline_names_every_type_that_would_do(lab: Lab) -> None:
    lab.node("n1", gpus=1)
    lab.node("n2", "t4", gpus=1)
    lab.running(*(lab.submit(UNTIL_LET_GO, preemptible=False) for _ in range(2)))
    job = waits(lab, lab.submit())
    assert job.message == "1 A100 or 1 T4 needed; left after the jobs that come first: 0 A100, 0 T4."
    (reason,) = job.reasons
    assert reason["numbers"] == {
        "gpu_type": "a100",
        "needed": 1,
        "left": 0,
        "others": [{"gpu_type": "t4", "needed": 1, "left": 0}],
    }


def test_the_cpus_of_a_gang_that_a_cordon_ties_to_its_nodes_are_not_given_twice(lab: Lab) -> None:
    nodes = [lab.node(name, gpus=3, cpus=4) for name in ("n1", "n2")]
    gang = lab.submit(UNTIL_LET_GO, gpus=4, cpus_per_gpu=2)
    lab.running(gang)
    cordon(nodes[1], reason="repair", actor=None)
    waits(lab, lab.submit(cpus_per_gpu=1))


def test_a_job_that_can_run_nowhere_does_not_stop_the_round(lab: Lab) -> None:
    lab.node("n1")
    cordon(lab.node("h1", "h100"), reason="repair", actor=None)
    stuck = lab.submit(name="stuck", gpu_types=["h100"])
    lab.until_state(lab.submit(), State.SUCCEEDED)
    stuck.refresh_from_db()
    assert (stuck.state, stuck.reason) == (State.QUEUED, Reason.NO_HEALTHY_NODE)


def test_an_empty_queue_is_a_round_too(lab: Lab) -> None:
    lab.node("n1")
    lab.tick()
    assert Round.objects.get().result == Round.Result.COMMITTED


def test_a_cluster_without_nodes_is_a_round_too(lab: Lab) -> None:
    lab.tick()
    assert Round.objects.get().result == Round.Result.COMMITTED
