"""This machine is registered with what NVML reports; figures of unknown GPU types are asked for, not made up."""

import pytest
from django.utils import timezone

from cluster_app.models import GpuType, Node
from connections_app import register_machine
from connections_app.register_machine import register_this_machine
from engines.protocol import GpuReport, NodeReport
from insight_app.explain.decisions import explain_job
from jobs_app.models import Job
from tests.service_lab import Lab

pytestmark = pytest.mark.django_db


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A machine of two GPUs of the type that the test names; the second does not tell its memory."""
    gpus = (GpuReport(0, uuid="GPU-0", memory_mib=180_000), GpuReport(1, uuid="GPU-1", memory_mib=0, fault="lost"))
    report = NodeReport("box", request.param, gpus, cpus=16, memory_mib=65_536)
    monkeypatch.setattr(register_machine, "this_machine", lambda: report)


@pytest.mark.parametrize("machine", ["b300"], indirect=True)
def test_an_unknown_gpu_type_is_registered_without_figures_and_asks_for_them(machine: None) -> None:
    assert "TFLOPS and memory bandwidth of b300 are not known: enter them" in str(register_this_machine())
    kind = GpuType.objects.get()
    assert (kind.name, kind.memory_mib, kind.tflops, kind.bandwidth_gbs) == ("b300", 180_000, None, None)
    assert Node.objects.get().gpu_set.count() == 2


@pytest.mark.parametrize("machine", ["h200"], indirect=True)
def test_a_known_gpu_type_has_the_figures_of_the_table_and_the_memory_that_the_driver_reports(machine: None) -> None:
    assert register_this_machine() == "box: 2 x h200"
    kind = GpuType.objects.get()
    assert (kind.tflops, kind.bandwidth_gbs, kind.memory_mib) == (989, 4800, 180_000)


def test_a_job_runs_on_an_unknown_gpu_type_as_fast_as_on_the_slowest_known(lab: Lab) -> None:
    lab.node("n1", "a100", gpus=1)
    GpuType.objects.create(name="b300", memory_mib=180_000)
    lab.node("n2", "b300", gpus=1)
    job = lab.submit("true")
    lab.until_state(job, Job.State.SUCCEEDED)
    lab.submit("sleep 9")
    lab.round()
    used = explain_job(Job.objects.latest("created_at"), timezone.now())["rates_used"]
    ratios = {rate["gpu_type"]: rate["relative"] for rate in used}
    assert ratios["b300"] == ratios["a100"] > 0
