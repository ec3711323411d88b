"""What an agent says of its machine: as its engine reports it, which waits for no driver that hangs."""

import pytest

from engines.agent.machine import EmulatedGpus, MachineReports, machine_report
from engines.protocol import EngineError, GpuReport, NodeReport

FOUND = NodeReport("host", "a100", [GpuReport(0, "GPU-a", 40_960)], cpus=8, memory_mib=1024, limits="cgroups")
DECLARED = NodeReport("desk")


def test_the_machine_is_the_node_with_gpus_under_the_name_of_the_agent() -> None:
    report = machine_report("desk", None, [DECLARED, FOUND])
    assert (report.name, report.gpu_type, report.limits) == ("desk", "a100", "cgroups")


def test_emulated_gpus_are_those_of_the_declared_node() -> None:
    report = machine_report("desk", EmulatedGpus("k80", 2), [DECLARED, FOUND])
    assert (report.gpu_type, [gpu.uuid for gpu in report.gpus]) == ("k80", ["", ""])


def test_while_the_driver_is_late_the_last_report_is_sent() -> None:
    looks = [[DECLARED, FOUND], [DECLARED]]
    reports = MachineReports("desk", None, lambda: looks.pop(0))
    assert reports(has_work=True) == reports(has_work=True)
    assert looks == []


def test_without_work_the_driver_and_the_disk_are_asked_less_often() -> None:
    looks: list[float] = []
    now_s = [100.0]

    def look() -> list[NodeReport]:
        looks.append(now_s[0])
        return [DECLARED, FOUND]

    reports = MachineReports("desk", None, look, clock=lambda: now_s[0])
    for now_s[0] in (100.0, 101.0, 104.9, 105.0, 106.0):
        reports(has_work=False)
    assert looks == [100.0, 105.0]
    reports(has_work=True)
    assert looks == [100.0, 105.0, 106.0]


def test_without_any_report_there_is_an_error() -> None:
    with pytest.raises(EngineError, match="no GPU"):
        MachineReports("desk", None, lambda: [DECLARED])(has_work=False)
