"""Where NVML finds GPUs, this machine is registered with them instead of an emulated cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deployment import wait_for
from tests.nvml_driver import compiled_driver
from tests.service.running_service import Service, a_service


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, runtime: Path, data_folder: Path) -> Iterator[Service]:
    """A service on a machine of two GPUs, of which the second is broken."""
    driver: Path = compiled_driver(tmp_path_factory.mktemp("driver"))
    with a_service(prepared=data_folder, DEMO="1", LD_LIBRARY_PATH=str(driver)) as running:
        yield running


def test_this_machine_is_the_only_node_and_not_emulated(machine: Service) -> None:
    (node,) = machine.client.nodes()
    assert (node["gpu_type"], node["gpus"], node["emulated"]) == ("h200", 2, False)


def test_a_job_sees_its_gpu_by_its_uuid_and_not_the_broken_one(machine: Service) -> None:
    job = machine.submit("echo $CUDA_VISIBLE_DEVICES")
    machine.wait_for_state(job, "succeeded")
    assert machine.client.logs(job).data == b"GPU-0\n"


def test_a_job_that_needs_the_broken_gpu_is_told_that_no_node_is_in_service(machine: Service) -> None:
    job = machine.submit("true", gpus=2)
    waiting = wait_for("it has a reason", lambda: (j := machine.client.job(job))["reason"] == "no_healthy_node" and j)
    assert waiting["state"] == "queued"
