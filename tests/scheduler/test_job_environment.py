"""What a job finds in its environment, printed by the job itself."""

from typing import Any

import pytest

from jobs_app.errors import InvalidSpec
from jobs_app.models import Job
from jobs_app.submission.fields import RESERVED_VARIABLES, reserved_fault
from scheduler_app.round.commit import PORTS
from tests.deployment import ROOT
from tests.service_lab import UNTIL_LET_GO, Lab


def environment(lab: Lab, **spec: Any) -> dict[str, str]:
    return lab.environment(lab.until_state(lab.submit("env", **spec), Job.State.SUCCEEDED))


def both_ranks(lab: Lab, *names: str, **spec: Any) -> list[tuple[str, ...]]:
    """These variables, as either node's processes see them."""
    job = lab.until_state(lab.submit("env", **spec), Job.State.SUCCEEDED)
    ranks = [lab.environment(job, rank=rank) for rank in (0, 1)]
    return [tuple(found[name] for name in names) for found in ranks]


def test_a_gang_on_one_node_sees_its_gpus(lab: Lab) -> None:
    lab.node("n1", gpus=4)
    found = environment(lab, gpus=2)
    assert (found["CUDA_VISIBLE_DEVICES"], found["CUDA_DEVICE_ORDER"]) == ("0,1", "PCI_BUS_ID")


def test_what_python_prints_is_in_the_log_of_the_running_job(lab: Lab) -> None:
    lab.node("n1")
    job = lab.submit(["python3", "-c", "import time; print('now'); time.sleep(3600)"])
    lab.until(lambda: lab.attempts(job) and lab.attempts(job)[0].started_at and lab.output(job) == "now\n")


def test_a_job_may_have_what_python_prints_kept_back(lab: Lab) -> None:
    lab.node("n1")
    assert environment(lab, env={"PYTHONUNBUFFERED": ""})["PYTHONUNBUFFERED"] == ""


def test_two_jobs_on_a_node_see_different_gpus(lab: Lab) -> None:
    lab.node("n1")
    jobs = [lab.submit("env; sleep 0.2", name=name) for name in ("one", "two")]
    seen = {lab.environment(lab.until_state(job, Job.State.SUCCEEDED))["CUDA_VISIBLE_DEVICES"] for job in jobs}
    assert seen == {"0", "1"}


def test_torchrun_on_one_node_needs_no_options(lab: Lab) -> None:
    lab.node("n1")
    found = environment(lab, gpus=2)
    names = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_RDZV_BACKEND")
    assert [found[name] for name in names] == ["1", "2", "0", "static"]


def test_the_nodes_of_a_gang_know_their_ranks(lab: Lab) -> None:
    for name in ("n1", "n2"):
        lab.node(name)
    names = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "CUDA_VISIBLE_DEVICES")
    assert both_ranks(lab, *names, gpus=4) == [("2", "2", "0", "0,1"), ("2", "2", "1", "0,1")]


def test_the_nodes_of_a_gang_meet_at_one_port(lab: Lab) -> None:
    for name in ("n1", "n2"):
        lab.node(name)
    names = ("MASTER_ADDR", "MASTER_PORT", "PET_MASTER_PORT", "PET_MASTER_ADDR", "PET_RDZV_ID")
    first, second = both_ranks(lab, *names, gpus=4)
    assert first == second
    assert (first[0], first[1]) == (first[3], first[2])


def test_no_two_jobs_on_a_machine_meet_at_one_port(lab: Lab) -> None:
    """Emulated nodes are on one machine."""
    for name in ("n1", "n2", "n3"):
        lab.node(name)
    jobs = [lab.submit(UNTIL_LET_GO) for _ in range(6)]
    lab.running(*jobs)
    ports = {attempt.master_port for job in jobs for attempt in lab.attempts(job)}
    assert len(ports) == len(jobs)
    assert all(port in PORTS for port in ports)


def test_ranks_of_torchrun_are_those_of_motley(lab: Lab) -> None:
    """The back end c10d ignores the node rank that it is told, and waits forever where two ranks share a host."""
    for name in ("n1", "n2"):
        lab.node(name)
    names = ("PET_RDZV_BACKEND", "PET_NODE_RANK", "MOTLEY_NODE_RANK")
    assert both_ranks(lab, *names, gpus=4) == [("static", "0", "0"), ("static", "1", "1")]


def test_torchrun_waits_for_checkpoints_nearly_as_long_as_motley(lab: Lab) -> None:
    lab.node("n1")
    assert environment(lab, checkpoint={"grace_seconds": 60, "restore_seconds": 0})["PET_SHUTDOWN_TIMEOUT"] == "55"


def test_an_uneven_gang_has_as_many_processes_as_gpus_on_each_node(lab: Lab) -> None:
    for name in ("n1", "n2"):
        lab.node(name)
    names = ("PET_NPROC_PER_NODE", "CUDA_VISIBLE_DEVICES", "MOTLEY_WORLD_SIZE")
    assert both_ranks(lab, *names, gpus=3, uneven_gang=True) == [("2", "0,1", "3"), ("1", "0", "3")]


def test_jobs_do_not_meet_on_a_port(lab: Lab) -> None:
    lab.node("n1")
    jobs = [lab.submit("env; sleep 0.2", name=name) for name in ("one", "two")]
    ports = {lab.environment(lab.until_state(job, Job.State.SUCCEEDED))["MASTER_PORT"] for job in jobs}
    assert len(ports) == 2


def test_a_job_finds_its_name_team_and_attempt(lab: Lab) -> None:
    lab.node("n1")
    found = environment(lab, name="net", env={"MINE": "a b"})
    names = ("MOTLEY_JOB_NAME", "MOTLEY_TEAM", "MOTLEY_ATTEMPT", "MOTLEY_RESUME", "MOTLEY_GPU_TYPE", "MINE")
    assert [found[name] for name in names] == ["net", "vision", "1", "0", "a100", "a b"]


def test_what_motley_says_is_reserved_by_name(lab: Lab) -> None:
    lab.node("n1")
    said = [name for name in environment(lab) if name.startswith(("CUDA_", "MASTER_", "MOTLEY_", "PET_"))]
    assert not [name for name in said if reserved_fault(name) is None]
    with pytest.raises(InvalidSpec, match="CUDA_VISIBLE_DEVICES is reserved"):
        lab.submit(env={"CUDA_VISIBLE_DEVICES": "7"})
    with pytest.raises(InvalidSpec, match="MASTER_ADDR is reserved"):
        lab.submit(secrets=["MASTER_ADDR"])


def test_the_configuration_page_lists_what_is_reserved() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert not [name for names in RESERVED_VARIABLES.values() for name in names if f"`{name}`" not in page]


def test_nothing_of_the_services_own_environment_reaches_the_job(lab: Lab) -> None:
    lab.node("n1")
    assert "DJANGO_SETTINGS_MODULE" not in environment(lab)


def test_an_emulated_gang_is_told_the_rate_to_keep(lab: Lab) -> None:
    lab.node("n1")
    found = environment(lab, gpus=2, rates={"a100": 24.5})
    assert (found["MOTLEY_EMULATED"], found["MOTLEY_EMULATED_RATE"]) == ("1", "24.5")


def test_the_job_of_a_batch_script_finds_slurms_variables(lab: Lab) -> None:
    lab.node("n1", gpus=4)
    found = environment(lab, gpus=2, cpus_per_gpu=1, slurm_variables=True)
    names = ("SLURM_NNODES", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_GPUS_ON_NODE", "SLURM_CPUS_PER_TASK")
    assert [found[name] for name in names] == ["1", "1", "0", "2", "2"]
    assert found["SLURM_JOB_ID"].isdecimal()
    assert (found["SLURM_SUBMIT_DIR"], found["SLURM_JOB_NODELIST"]) == (found["PWD"], "n1")


def test_its_number_stays_over_all_attempts(lab: Lab) -> None:
    lab.node("n1")
    command = 'cd $MOTLEY_CHECKPOINT_DIR; echo "$SLURM_JOB_ID $SLURM_RESTART_COUNT" >> seen; cat seen; exit 1'
    job = lab.until_state(lab.submit(command, slurm_variables=True, retries=1), Job.State.FAILED)
    number, first, again, second = lab.output(job).split()
    assert (number == again, first, second) == (True, "0", "1")


def test_a_task_of_a_script_knows_its_place_in_the_array(lab: Lab) -> None:
    lab.node("n1", gpus=4)
    job = lab.submit("env", array="1,3,7-11:2", slurm_variables=True)
    tasks = list(Job.objects.filter(array=job.array).order_by("array_index"))
    found = [lab.environment(lab.until_state(task, Job.State.SUCCEEDED)) for task in tasks]
    assert [one["SLURM_ARRAY_TASK_ID"] for one in found] == ["1", "3", "7", "9", "11"]
    assert len({one["SLURM_ARRAY_JOB_ID"] for one in found}) == 1
    whole = ("MIN", "MAX", "COUNT")
    assert [found[0][f"SLURM_ARRAY_TASK_{name}"] for name in whole] == ["1", "11", "5"]


def test_other_jobs_are_not_taken_for_jobs_of_slurm(lab: Lab) -> None:
    lab.node("n1")
    assert not [name for name in environment(lab) if name.startswith("SLURM")]
