"""A node that sleeps and wakes: a live service puts it to sleep at low load, and wakes it for a job that then runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deployment import CHOOSE_ROUNDS, wait_for
from tests.service.running_service import Service, a_service
from tests.service_lab import UNTIL_LET_GO

TWO_NODES = (
    "from cluster_app.models import GpuType\n"
    "from cluster_app.services import add_node\n"
    "from connections_app.register_machine import gpu_type_columns\n"
    "kind = GpuType.objects.create(**{'name': 'a100', **gpu_type_columns('a100'), 'boot_s': 1})\n"
    "for name in ('n1', 'n2'):\n"
    "    add_node(name, kind, gpus=2, cpus=64, memory_mib=2**19, emulated=True)\n"
) + CHOOSE_ROUNDS.format(policy="fifo", round_s=1, min_run_s=0)
DEMAND_FELL = """
from cluster_app.models import GpuType
from django.utils import timezone
from accounting_app.energy.node_use import start_of, step_of
from accounting_app.models import NodeUse, SleepAdvice
kind, now = GpuType.objects.get(), step_of(timezone.now())
NodeUse.objects.all().delete()
NodeUse.objects.bulk_create(
    NodeUse(gpu_type=kind, at=start_of(step), used=2 if step < now - 1 else 0, nodes=2) for step in range(now - 7, now)
)
SleepAdvice.objects.all().delete()
"""
"""As rounds would have written it, both nodes were in use until the last ten minutes; the next turn decides on it."""
COMMAND = '#!/bin/sh\necho "$(basename "$0") $1" >>"$(dirname "$0")/told"\n'


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Folder of the site's two commands, which note what they were told."""
    for name in ("sleep", "wake"):
        (tmp_path / name).write_text(COMMAND)
        (tmp_path / name).chmod(0o755)
    return tmp_path


@pytest.fixture
def service(runtime: Path, data_folder: Path, site: Path) -> Iterator[Service]:
    commands = {"MOTLEY_NODE_SLEEP": f"{site}/sleep {{node}}", "MOTLEY_NODE_WAKE": f"{site}/wake {{node}}"}
    with a_service(prepared=data_folder, **commands) as running:
        running.python(TWO_NODES)
        yield running


def states(service: Service) -> dict[str, str]:
    return {node["name"]: node["state"] for node in service.client.nodes()}


def asleep(service: Service) -> list[str]:
    return [name for name, state in states(service).items() if state == "sleeping"]


def test_a_node_sleeps_when_demand_has_fallen_and_wakes_for_a_job_that_runs_there(service: Service, site: Path) -> None:
    service.python(DEMAND_FELL)
    (sleeper,) = wait_for("a node sleeps", lambda: asleep(service))
    wait_for("the site is told", (site / "told").exists)  # a job that came before that would only have it woken
    jobs = [service.submit(UNTIL_LET_GO, gpus=2) for _ in range(2)]
    for job in jobs:
        service.wait_for_state(job, "running")
    ran_on = {node for job in jobs for attempt in service.client.attempts(job) for node in attempt["nodes"]}
    assert ran_on == {"n1", "n2"}
    assert (site / "told").read_text().splitlines() == [f"sleep {sleeper}", f"wake {sleeper}"]
    assert states(service) == {"n1": "ready", "n2": "ready"}
    for job in jobs:
        service.let_go(job)
        service.wait_for_state(job, "succeeded")
