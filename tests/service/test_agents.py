"""Machines that join with a token: an agent of its own process and folder, beside a live service."""

import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.agent_process import AgentProcess, an_agent
from tests.deployment import wait_for
from tests.nvml_driver import compiled_driver
from tests.service.running_service import Service, a_service

pytestmark = pytest.mark.xdist_group("agents")
COUNTS = (
    'at=$(cat "$MOTLEY_CHECKPOINT_DIR/step" 2>/dev/null || echo 0); '
    "trap 'echo $at > \"$MOTLEY_CHECKPOINT_DIR/step\"; exit 143' TERM; "
    'while [ "$MOTLEY_ATTEMPT" = 1 ] || [ "$at" -lt $((start + 3)) ]; do '
    'at=$((at + 1)); : "${start:=$at}"; echo "step $at"; sleep 0.05; done'
)
"""Counts steps, and saves the last one when it is told to stop. Its second attempt does a few more, and ends."""
SAVES = (
    'cd "$MOTLEY_CHECKPOINT_DIR"; at=$(cat step 2>/dev/null || echo 0); echo "from $at"; '
    'while [ "$MOTLEY_ATTEMPT" = 1 ]; do '
    "at=$((at + 1)); echo $at > step.partial; mv step.partial step; sleep 0.05; done"
)
"""Saves each step. Its second attempt says from which one it goes on, and ends."""
UNTIL_LET_GO = 'while [ ! -e "$MOTLEY_CHECKPOINT_DIR/go" ]; do sleep 0.05; done'

ANOTHER_K80 = (
    "from cluster_app.models import GpuType\n"
    "from cluster_app.services import add_node\n"
    "k80 = GpuType.objects.get(name='k80')\n"
    "add_node('stays', k80, gpus=1, cpus=8, memory_mib=2**15, emulated=True)"
)


@pytest.fixture(scope="module")
def service(runtime: Path, data_folder: Path) -> Iterator[Service]:
    """One whose agents have a lease of a few seconds."""
    with a_service(prepared=data_folder, MOTLEY_AGENT_LEASE_S="8") as running:
        running.declare(v100=1)
        yield running


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a library that answers as NVIDIA's."""
    return compiled_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def agent(service: Service, job_user: str) -> Iterator[AgentProcess]:
    with an_agent(service, job_user) as one:
        yield one


@pytest.fixture
def successor(service: Service, job_user: str) -> Iterator[AgentProcess]:
    with an_agent(service, job_user) as one:
        yield one


def test_a_volunteer_that_leaves_with_notice_loses_no_step(service: Service, agent: AgentProcess) -> None:
    agent.join("ada-desk", "k80:2")
    agent.start()
    job = service.submit(COUNTS, gpu_types=["k80"])
    wait_for("it counts on the volunteer's machine", lambda: "step 3\n" in log_of(service, job, 1))
    service.python(ANOTHER_K80)
    agent.send(signal.SIGTERM)
    assert agent.exit_status() == 0
    service.wait_for_state(job, "succeeded")
    steps = [int(line.split()[1]) for n in (1, 2) for line in log_of(service, job, n).splitlines()]
    assert steps == list(range(1, len(steps) + 1))
    assert nodes_of(service, job) == [["ada-desk"], ["stays"]]


def test_the_gpu_of_a_volunteer_is_read_and_its_owners_hooks_run(
    service: Service, agent: AgentProcess, driver: Path, tmp_path: Path
) -> None:
    agent.driver = {"LD_LIBRARY_PATH": str(driver), "GPU_COUNT": "1"}
    agent.join("eve-desk")
    agent.start("--gpu-hook-before", f"touch {tmp_path}/before-{{gpu}}")
    job = service.submit(UNTIL_LET_GO, gpu_types=["h200"])
    use = wait_for("its GPU is read", lambda: service.client.job_gpus(job)["gpus"])
    assert [(one["node"], one["utilization"], one["power_w"]) for one in use] == [("eve-desk", 37.0, 250.5)]
    before = wait_for("the owner's hook has run", lambda: [path.name for path in tmp_path.glob("before-*")])
    assert before == ["before-GPU-0"]
    agent.let_go(job)
    service.wait_for_state(job, "succeeded")


def test_an_agent_that_is_killed_finds_its_job_again(service: Service, agent: AgentProcess) -> None:
    agent.join("bob-desk", "p100:1")
    agent.start()
    job = service.submit(f"echo begun; {UNTIL_LET_GO}; echo over", gpu_types=["p100"])
    wait_for("it runs on the volunteer's machine", lambda: log_of(service, job, 1) == "begun\n")
    agent.kill()
    agent.start()
    agent.let_go(job)
    service.wait_for_state(job, "succeeded")
    assert log_of(service, job, 1) == "begun\nover\n"
    assert nodes_of(service, job) == [["bob-desk"]]


def test_a_job_whose_agent_stands_still_stops_before_it_may_start_elsewhere(
    service: Service, agent: AgentProcess
) -> None:
    """The lease runs out in the supervisor, whatever has become of the agent."""
    agent.join("eve-desk", "t4:1")
    agent.start()
    job = service.submit(COUNTS, gpu_types=["t4"], checkpoint={"grace_seconds": 1})
    wait_for("it counts on the volunteer's machine", lambda: "step 3\n" in log_of(service, job, 1))
    agent.send(signal.SIGSTOP)
    wait_for("nothing of it runs", lambda: not agent.jobs())
    agent.send(signal.SIGCONT)
    service.wait_for_state(job, "succeeded")
    steps = [int(line.split()[1]) for n in (1, 2) for line in log_of(service, job, n).splitlines()]
    assert steps == list(range(1, len(steps) + 1))


def test_a_machine_goes_on_with_a_service_that_went_back_to_a_backup(
    runtime: Path, data_folder: Path, job_user: str, tmp_path: Path
) -> None:
    """One job ends after the backup, one runs all the time, one begins after it. No step is done twice."""
    lease = {"MOTLEY_AGENT_LEASE_S": "8"}
    with a_service(prepared=data_folder, **lease) as service, an_agent(service, job_user) as agent:
        agent.join("fay-desk", "k80:2")
        agent.start()
        given = {"gpu_types": ["k80"], "checkpoint": {"grace_seconds": 2}}
        known, ended = service.submit(COUNTS, **given), service.submit(f"echo begun; {UNTIL_LET_GO}", **given)
        wait_for("both run", lambda: "step 3\n" in log_of(service, known, 1) and log_of(service, ended, 1))
        assert service.manage("backup", str(tmp_path / "file")).returncode == 0
        agent.let_go(ended)
        service.wait_for_state(ended, "succeeded")
        wait_for("the service has all of it", lambda: not agent.has_folder_of(ended))
        late = service.submit("sleep 600", **given)
        service.wait_for_state(late, "running")
        service.kill()
        done = service.manage("restore", "--replace", str(tmp_path / "file"))
        assert done.returncode == 0, done.stderr
        assert not agent.jobs()
        service.start()
        service.wait_for_state(known, "succeeded")
        steps = [int(line.split()[1]) for n in (1, 2) for line in log_of(service, known, n).splitlines()]
        assert steps == list(range(1, len(steps) + 1))
        service.wait_for_state(ended, "succeeded")  # it has its last checkpoints, and `go` among them
        wait_for("it was begun again", lambda: log_of(service, ended, 2) == "begun\n")
        assert agent.process is not None
        assert agent.process.poll() is None


def test_a_machine_that_dies_costs_the_work_since_its_last_uploaded_checkpoint(
    service: Service, agent: AgentProcess, successor: AgentProcess
) -> None:
    agent.join("dan-desk", "p4:1")
    agent.start("--checkpoints-every", "1s")
    job = service.submit(SAVES, gpu_types=["p4"], setup="sleep 0.2")
    archive = service.engine_root / "agents" / "checkpoints" / f"{job}.tar.gz"
    wait_for("what it has saved is with the service", archive.exists)
    agent.die()
    saved = step_in(archive)
    successor.join("dan-desk", "p4:1")
    successor.start()
    service.wait_for_state(job, "succeeded")
    went_on = int(log_of(service, job, 2).split()[1])
    assert went_on >= saved > 0
    first, second = sorted(service.client.attempts(job), key=lambda one: one["number"])
    assert (first["code_s"], first["setup_s"] >= 0.2, second["code_s"] > 0) == (None, True, True)


def step_in(archive: Path) -> int:
    with tarfile.open(archive) as packed:
        step = packed.extractfile("./step")
        assert step is not None
        return int(step.read())


def nodes_of(service: Service, job: str) -> list[list[str]]:
    """Of each of its attempts."""
    headers = {"Authorization": f"Bearer {service.token}"}
    answer = httpx.get(f"{service.url}/api/v1/jobs/{job}/attempts", headers=headers).json()
    return [attempt["nodes"] for attempt in sorted(answer["results"], key=lambda attempt: attempt["number"])]


def log_of(service: Service, job: str, attempt: int) -> str:
    headers = {"Authorization": f"Bearer {service.token}"}
    answer = httpx.get(
        f"{service.url}/api/v1/jobs/{job}/logs", params={"attempt": attempt, "limit": 1_000_000}, headers=headers
    )
    return answer.text if answer.status_code == 200 else ""
