"""Where NVML finds GPUs, this machine is registered with them instead of an emulated cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deployment import wait_for
from tests.nvml_driver import compiled_driver
from tests.service.running_service import Service, a_service
from tests.service_lab import UNTIL_LET_GO


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module")
def machine(driver: Path, runtime: Path, data_folder: Path) -> Iterator[Service]:
    """A service on a machine of two GPUs, of which the second is broken."""
    with a_service(prepared=data_folder, DEMO="1", LD_LIBRARY_PATH=str(driver)) as running:
        yield running


def test_this_machine_is_the_only_node_and_not_emulated(machine: Service) -> None:
    (node,) = machine.client.nodes()
    assert (node["gpu_type"], node["gpus"], node["emulated"]) == ("h200", 2, False)


def test_a_job_sees_its_gpu_by_its_uuid_and_not_the_broken_one(machine: Service) -> None:
    job = machine.submit("echo $CUDA_VISIBLE_DEVICES")
    machine.wait_for_state(job, "succeeded")
    assert machine.client.logs(job).data == b"GPU-0\n"


def test_the_gpu_of_a_running_job_is_read(machine: Service) -> None:
    job = machine.submit(UNTIL_LET_GO)
    found = wait_for("its GPU was read", lambda: (g := machine.client.job_gpus(job))["gpus"] and g)
    machine.let_go(job)
    machine.wait_for_state(job, "succeeded")
    (gpu,) = found["gpus"]
    assert (gpu["index"], gpu["utilization"], gpu["memory_used_max_mib"], gpu["power_w"]) == (0, 37, 12 * 1024, 250.5)
    assert not found["emulated"]


def test_a_job_that_needs_the_broken_gpu_is_told_that_no_node_is_in_service(machine: Service) -> None:
    job = machine.submit("true", gpus=2)
    waiting = wait_for("it has a reason", lambda: (j := machine.client.job(job))["reason"] == "no_healthy_node" and j)
    assert waiting["state"] == "queued"


def test_a_gpu_that_breaks_under_a_gang_keeps_itself_and_not_the_others(
    driver: Path, tmp_path: Path, runtime: Path, data_folder: Path
) -> None:
    breaks = {"LD_LIBRARY_PATH": str(driver), "SECOND_GPU_IS_LOST_WITH": str(tmp_path / "lost")}
    with a_service(prepared=data_folder, DEMO="1", **breaks) as machine:
        gang = machine.submit(UNTIL_LET_GO, gpus=2)
        machine.wait_for_state(gang, "running")
        (tmp_path / "lost").touch()
        machine.let_go(gang)
        machine.wait_for_state(gang, "succeeded")
        next_one = machine.submit("echo $CUDA_VISIBLE_DEVICES")
        machine.wait_for_state(next_one, "succeeded")
        assert machine.client.logs(next_one).data == b"GPU-0\n"
