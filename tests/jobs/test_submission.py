"""Submitting: what could never run is refused at once, with the constraint and the largest possible."""

from typing import Any
from uuid import uuid4

import pytest

from audit_app.models import AuditEntry
from cluster_app.models import Engine
from cluster_app.services import cordon
from jobs_app.errors import InvalidSpec
from jobs_app.models import Job, JobArray, Reason
from jobs_app.submission.admission import default_workload
from jobs_app.submission.conversion import spec_of
from jobs_app.submission.submit import cloned_spec, submit_job
from jobs_app.teams import add_member
from tests.service_lab import Lab
from web.rest.errors import Fault


def refusal(lab: Lab, **spec: Any) -> Fault:
    """The one fault for which the job is refused."""
    with pytest.raises(InvalidSpec) as refused:
        lab.submit(**spec)
    (fault,) = refused.value.faults
    return fault


@pytest.fixture
def cluster(lab: Lab) -> Lab:
    """Two nodes of four A100 (40 GiB), one of two T4 (16 GiB); 8 CPUs and 64 GiB a GPU."""
    for name in ("a1", "a2"):
        lab.node(name, "a100", gpus=4, cpus=32, memory_gib=256)
    lab.node("t1", "t4", gpus=2, cpus=16, memory_gib=128)
    return lab


# -- what could never run ----------------------------------------------------------------------------------------

IMPOSSIBLE = [
    ({"gpu_types": ["h100"]}, "no_such_gpu", "/gpu_types", "A100, T4"),
    ({"gpu_memory": "80GiB"}, "gpu_memory_too_small", "/gpu_memory", "40960 MiB"),
    ({"gpu_memory": "20GiB", "gpu_types": ["t4"]}, "gpu_memory_too_small", "/gpu_memory", "16384 MiB"),
    ({"gpus": 16}, "gang_too_large", "/gpus", "8 A100, 2 T4"),
    ({"gpus": 4, "gpu_types": ["t4"]}, "gang_too_large", "/gpus", "2 T4"),
    ({"gpus": 5}, "gang_too_large", "/gpus", "8 A100"),
    ({"cpus_per_gpu": 64}, "insufficient_cpus", "/cpus_per_gpu", "32"),
    ({"gpus": 8, "cpus_per_gpu": 16}, "gang_too_large", "/gpus", "2 A100"),
    ({"memory_per_gpu": "1TiB"}, "insufficient_memory", "/memory_per_gpu", "262144 MiB"),
    ({"gpus": 8, "memory_per_gpu": "128GiB"}, "gang_too_large", "/gpus", "2 A100"),
]


@pytest.mark.parametrize(("asked", "code", "pointer", "largest"), IMPOSSIBLE)
def test_what_no_node_can_hold_is_refused_with_the_largest_possible(
    cluster: Lab, asked: dict[str, Any], code: str, pointer: str, largest: str
) -> None:
    fault = refusal(cluster, **asked)
    assert (fault["code"], fault["pointer"]) == (code, pointer)
    assert largest in fault["detail"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"gpus": 16}, "No GPU type has room for 16 GPUs of one job; the most possible: 8 A100, 2 T4."),
        ({"gpus": 8, "cpus_per_gpu": 16}, "8 GPUs of one job with the requested CPUs; the most possible: 2"),
        ({"gpus": 8, "memory_per_gpu": "128GiB"}, "8 GPUs of one job with the requested memory; the most possible: 2"),
        (
            {"gpus": 8, "cpus_per_gpu": 16, "memory_per_gpu": "9GiB", "gpu_memory": "9GiB"},
            "8 GPUs of one job with the requested CPUs, memory and GPU memory; the most possible: 2",
        ),
        ({"gpus": 5}, "the most possible: 8 A100, 2 T4. A job has equally many on each of its nodes, unless"),
    ],
)
def test_a_refused_number_of_gpus_is_told_with_the_limits_that_were_given_and_no_others(
    cluster: Lab, asked: dict[str, Any], words: str
) -> None:
    assert words in refusal(cluster, **asked)["detail"]


def test_what_slurm_books_for_a_gpu_counts_as_requested(cluster: Lab) -> None:
    """Such a job was accepted, and waited for ever."""
    Engine.objects.update(kind=Engine.Kind.SLURM, options={"cpus_per_gpu": 16})
    fault = refusal(cluster, gpus=8)
    books = "8 GPUs of one job beside the CPUs and memory that Slurm books for each GPU; the most possible: 2 A100"
    assert (fault["code"], fault["pointer"]) == ("gang_too_large", "/gpus")
    assert books in fault["detail"]
    assert "books" not in refusal(cluster, gpus=16, cpus_per_gpu=16)["detail"]  # the job asks for as much itself
    assert "books" not in refusal(cluster, gpus=16)["detail"], "it would not fit without what is booked"
    assert cluster.submit(gpus=2).state == Job.State.QUEUED


@pytest.mark.parametrize("asked", [{"gpus": 8}, {"gpus": 5, "uneven_gang": True}, {"gpus": {"min": 1, "max": 64}}])
def test_what_some_nodes_can_hold_is_accepted(cluster: Lab, asked: dict[str, Any]) -> None:
    assert cluster.submit(**asked).state == Job.State.QUEUED


def test_nodes_out_of_service_count_for_they_may_be_back(cluster: Lab) -> None:
    cordon(cluster.node("h1", "h100"), reason="repair", actor=None)
    assert cluster.submit(gpu_types=["h100"]).state == Job.State.QUEUED


def test_a_cluster_without_gpus_says_what_to_do(lab: Lab) -> None:
    fault = refusal(lab)
    assert fault["code"] == "no_such_gpu"
    assert "administrator" in fault["detail"]


# -- teams and their limits --------------------------------------------------------------------------------------


def test_the_only_team_of_the_submitter_is_the_default(cluster: Lab) -> None:
    assert cluster.submit(owner=cluster.user("bob", "language")).team.name == "language"


def test_the_default_team_stays_when_somebody_adds_the_submitter_to_another(cluster: Lab) -> None:
    """A lead may add any account: scripts that name no team go on."""
    bob = cluster.user("bob", "vision")
    add_member(cluster.team("animals"), "bob", actor=cluster.user("root", "ops", staff=True))
    assert cluster.submit(owner=bob).team.name == "vision"
    bob.teams.remove(cluster.team("vision"))
    assert cluster.submit(owner=bob).team.name == "animals"


def test_an_administrator_in_no_team_must_name_one(cluster: Lab) -> None:
    for name in ("vision", "language"):
        cluster.team(name)
    root = cluster.user("root", staff=True)
    root.teams.clear()
    fault = refusal(cluster, owner=root)
    assert (fault["pointer"], fault["code"]) == ("/team", "team_needed")
    assert "language" in fault["detail"]


def test_a_user_without_a_team_is_told_to_ask(cluster: Lab) -> None:
    bob = cluster.user("bob")
    bob.teams.clear()
    assert "administrator" in refusal(cluster, owner=bob)["detail"]


def test_users_submit_for_their_own_teams_only(cluster: Lab) -> None:
    cluster.team("language")
    assert refusal(cluster, team="language")["code"] == "no_such_team"


def test_a_weight_above_the_teams_limit_is_refused(cluster: Lab) -> None:
    cluster.team("vision", max_job_weight=2.0)
    fault = refusal(cluster, weight=2.5)
    assert (fault["pointer"], fault["code"]) == ("/weight", "weight_too_large")


def test_staff_may_exceed_the_weight_limit(cluster: Lab) -> None:
    assert cluster.submit(owner=cluster.user("root", staff=True), weight=100).weight == 100


def test_that_staff_exceeded_it_is_in_the_history(cluster: Lab) -> None:
    job = cluster.submit(owner=cluster.user("root", staff=True), weight=100)
    assert job.events.get().message == "weight 100 is above the team's limit of 1"


def test_a_submission_is_on_the_audit_list(cluster: Lab) -> None:
    first = cluster.submit(array={"start": 0, "end": 99})
    entry = AuditEntry.objects.get(action="job.submit")
    assert (entry.actor_name, entry.target_id, entry.message) == ("ada", str(first.pk), "an array of 100")


@pytest.mark.parametrize("cap", ["max_gpus", "max_gpus_per_member"])
def test_a_gang_above_the_teams_cap_is_refused(cluster: Lab, cap: str) -> None:
    cluster.team("vision", **{cap: 2})
    fault = refusal(cluster, gpus=4)
    assert (fault["pointer"], fault["code"]) == ("/gpus", "quota")


# -- other jobs --------------------------------------------------------------------------------------------------


def test_a_job_that_waits_for_another_says_so(cluster: Lab) -> None:
    job = cluster.submit(after=[{"job": str(cluster.submit().pk)}])
    assert job.reason == Reason.DEPENDENCY


def test_waiting_for_a_job_that_does_not_exist_is_refused(cluster: Lab) -> None:
    assert refusal(cluster, after=[{"job": str(uuid4())}])["pointer"] == "/after/0/job"


def test_waiting_for_a_job_of_strangers_reads_as_if_it_did_not_exist(cluster: Lab) -> None:
    secret = cluster.submit(owner=cluster.user("eve", "language"))
    assert refusal(cluster, after=[{"job": str(secret.pk)}])["code"] == "no_such_job"


def test_waiting_twice_for_one_job_is_refused(cluster: Lab) -> None:
    parent = str(cluster.submit().pk)
    fault = refusal(cluster, after=[{"job": parent}, {"job": parent, "on": "end"}])
    assert fault["pointer"] == "/after/1/job"


def test_a_refused_job_leaves_nothing_behind(cluster: Lab) -> None:
    refusal(cluster, gpus=5, array={"start": 0, "end": 3})
    assert (Job.objects.count(), JobArray.objects.count()) == (0, 0)


def test_all_that_is_wrong_with_team_cluster_and_parents_is_said_at_once(cluster: Lab) -> None:
    with pytest.raises(InvalidSpec) as refused:
        cluster.submit(weight=5, gpus=5, after=[{"job": str(uuid4())}])
    assert [fault["pointer"] for fault in refused.value.faults] == ["/weight", "/gpus", "/after/0/job"]


# -- arrays and copies -------------------------------------------------------------------------------------------


def test_an_array_is_a_job_for_each_index(cluster: Lab) -> None:
    first = cluster.submit(array={"start": 3, "end": 5})
    assert [str(job) for job in Job.objects.filter(array=first.array).order_by("id")] == ["job[3]", "job[4]", "job[5]"]


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("1,3,7-10:2%2", [1, 3, 7, 9]),
        ("0-10:5", [0, 5, 10]),
        ("3", [3]),
        (3, [3]),
        ("2-4", [2, 3, 4]),
        ("5,5,4", [4, 5]),
    ],
)
def test_an_array_may_have_gaps(cluster: Lab, text: str | int, indices: list[int]) -> None:
    first = cluster.submit(array=text)
    assert [job.array_index for job in Job.objects.filter(array=first.array).order_by("id")] == indices


def test_every_member_of_an_array_waits_for_the_parent(cluster: Lab) -> None:
    parent = cluster.submit()
    cluster.submit(array={"start": 0, "end": 1}, after=[{"job": str(parent.pk)}])
    assert parent.needed_by.count() == 2


def test_jobs_get_ids_in_the_order_of_submission(cluster: Lab) -> None:
    jobs = [cluster.submit(name=f"job-{n}") for n in range(50)]
    assert list(Job.objects.order_by("id")) == jobs


def test_a_clone_asks_for_the_same_and_belongs_to_the_user_that_cloned(cluster: Lab) -> None:
    bob = cluster.user("bob")
    copy = submit_job(cloned_spec(spec_of(cluster.submit(gpus=2, env={"A": "1"}, time_limit="2h"))), owner=bob)
    assert (copy.gpus_min, copy.env, copy.time_limit_s, copy.owner) == (2, {"A": "1"}, 7200, bob)


def test_a_clone_does_not_wait_for_the_parents_of_the_original(cluster: Lab) -> None:
    job = cluster.submit(after=[{"job": str(cluster.submit().pk)}])
    assert not submit_job(cloned_spec(spec_of(job)), owner=cluster.user()).needs.exists()


@pytest.mark.parametrize(
    ("name", "command", "workload"),
    [
        ("resnet-17", "torchrun train.py", "resnet/torchrun"),
        ("resnet-18", ["torchrun", "train.py"], "resnet/torchrun"),
        ("odd", "echo 'unbalanced", "odd/echo"),
        ("train", "PYTHONPATH=/x python t.py", "train/python"),
        ("train", "A='1 2' B= python t.py", "train/python"),
        ("17", "true", "17/true"),
    ],
)
def test_a_workload_is_named_after_the_job_and_its_program(name: str, command: Any, workload: str) -> None:
    assert default_workload(name, command) == workload
