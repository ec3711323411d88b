"""Discovery of GPUs, through a driver library that is compiled here and answers as NVIDIA's does."""

import json
import os
import subprocess
import sys
from pathlib import Path
from shutil import copy, which
from typing import Any

import pytest

from engines.nvml import MPS_SERVER, NO_ANSWER, NO_HANDLE, name_of_process, normal_gpu_type
from tests.nvml_driver import compiled_driver

ROOT = Path(__file__).parent.parent.parent
ASK = """
import json
from dataclasses import asdict
from engines.nvml import device_is_free, gpu_minors, this_machine
node = this_machine()
free = [device_is_free(uuid) for uuid in ("GPU-0", "GPU-1", "GPU-9")]
minors = [gpu_minors(uuids) for uuids in ([], ["GPU-1", "GPU-0"], ["GPU-9"])]
print(json.dumps({"node": node and asdict(node), "free": free, "minors": minors}))
"""


def ask(script: str = ASK, **env: str) -> Any:
    if os.environ.get("CI") != "true":
        pytest.importorskip("pynvml")
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=os.environ | env, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What is found with a driver of two GPUs: one is free, the other lost while a process still computes on it."""
    return ask(LD_LIBRARY_PATH=str(compiled_driver(tmp_path_factory.mktemp("driver"))))


def test_this_machine_is_a_node_of_the_gpus_that_the_driver_names(answer: dict[str, object]) -> None:
    node = answer["node"]
    assert isinstance(node, dict)
    assert (node["gpu_type"], [gpu["uuid"] for gpu in node["gpus"]]) == ("h200", ["GPU-0", "GPU-1"])


def test_a_gpu_that_no_longer_answers_is_not_healthy(answer: dict[str, object]) -> None:
    node = answer["node"]
    assert isinstance(node, dict)
    assert [(gpu["memory_mib"], gpu["fault"]) for gpu in node["gpus"]] == [(141 * 1024, ""), (0, NO_ANSWER)]


def test_a_gpu_is_free_when_the_driver_knows_it_and_no_process_on_it(answer: dict[str, object]) -> None:
    assert answer["free"] == [True, False, False]


def test_device_files_are_numbered_as_the_driver_says(answer: dict[str, object]) -> None:
    assert answer["minors"] == [[], [5, 4], None]


def test_a_gpu_that_is_lost_takes_no_other_with_it(tmp_path: Path) -> None:
    """The driver gives no handle to it any more."""
    env = {"LD_LIBRARY_PATH": str(compiled_driver(tmp_path)), "LOST_WITHOUT_HANDLE": "1"}
    lost = tmp_path / "lost"
    asked = f"from engines.nvml import this_machine; this_machine(); open({str(lost)!r}, 'w')\n{ASK}"
    node = ask(asked, **env, SECOND_GPU_IS_LOST_WITH=str(lost))["node"]
    assert isinstance(node, dict)
    assert [(gpu["uuid"], gpu["fault"]) for gpu in node["gpus"]] == [("GPU-0", ""), ("GPU-1", NO_HANDLE)]
    lost.touch()
    node = ask(**env)["node"]
    assert isinstance(node, dict)
    assert [gpu["uuid"] for gpu in node["gpus"]] == ["GPU-0"]


def test_memory_errors_and_critical_xids_are_told_but_no_fault_of_a_job(tmp_path: Path) -> None:
    """XID 31 is a job's own fault, 79 that of the GPU: it is told for a minute, as the report may not be stored."""
    ecc, xid = tmp_path / "ecc", tmp_path / "xid"
    env = {"LD_LIBRARY_PATH": str(compiled_driver(tmp_path)), "FIRST_GPU_HAS_ECC_ERRORS_WITH": str(ecc)}
    script = f"""
import json
from pathlib import Path
from engines.nvml import this_machine
said = []
for xid in ("", "31", "79", ""):
    if xid:
        Path({str(xid)!r}).write_text(xid)
    said.append([(gpu.xid, gpu.fault) for gpu in this_machine().gpus][0])
Path({str(ecc)!r}).touch()
print(json.dumps([*said, this_machine().gpus[0].fault]))
"""
    told = ask(script, **env, FIRST_GPU_HAS_XID_WITH=str(xid), SECOND_GPU_IS_LOST_WITH=str(tmp_path / "never"))
    errors = "3 uncorrectable memory errors (ECC) since it was last reset"
    assert told == [[0, ""], [0, ""], [79, ""], [79, ""], errors]


def test_a_driver_that_hangs_stops_nobody_and_takes_its_gpus_out_until_it_answers(tmp_path: Path) -> None:
    hangs = tmp_path / "hangs"
    env = {"LD_LIBRARY_PATH": str(compiled_driver(tmp_path)), "DRIVER_HANGS_WITH": str(hangs)}
    script = f"""
import json
from pathlib import Path
from engines import nvml
hangs, said = Path({str(hangs)!r}), []
machine = nvml.MachineWatch()
def faults():
    return [gpu.fault for gpu in machine.report().gpus]
said.append(faults())
hangs.touch()
said.append(faults())
machine._hangs_after_s = 0
said.append(faults())
said.append(nvml.device_is_free("GPU-0"))
hangs.unlink()
while nvml.HANGS in faults():
    pass
said.append(faults())
print(json.dumps(said))
"""
    told = ask(script, **env, SECOND_GPU_IS_LOST_WITH=str(tmp_path / "never"))
    assert told == [["", ""], ["", ""], ["the driver does not answer"] * 2, False, ["", ""]]


def test_a_counter_that_says_it_cannot_count_is_no_number_of_errors(tmp_path: Path) -> None:
    """2**64 - 1 fits no column either, and would lose the readings of all GPUs."""
    (tmp_path / "uncounted").touch()
    env = {"LD_LIBRARY_PATH": str(compiled_driver(tmp_path)), "FIRST_GPU_CANNOT_COUNT_WITH": f"{tmp_path}/uncounted"}
    assert ask(f"{READ}print(json.dumps([one.ecc_errors for one in reader.read(gpus[1:2])]))", **env) == [None]
    assert ask(**env)["node"]["gpus"][0]["fault"] == ""


READ = """
import json, sys
from pathlib import Path
from engines.gpu_readings import GpuReader
from engines.protocol import WatchedGpu
gpus = [WatchedGpu(10 + n, "n1", n, uuid=f"GPU-{n}") for n in (2, 0, 9)]
reader = GpuReader(patience_s=30)
def told(readings):
    return {one.gpu: [one.utilization, one.memory_used_mib, one.power_w, one.temperature_c, one.throttle, one.processes]
            for one in readings}
"""


def test_all_gpus_are_read_in_one_pass(tmp_path: Path) -> None:
    (tmp_path / "process").touch()
    env = {"LD_LIBRARY_PATH": str(compiled_driver(tmp_path)), "GPU_COUNT": "3"}
    found = ask(
        READ + "print(json.dumps(told(reader.read(gpus))))", **env, FIRST_GPU_HAS_PROCESS_WITH=f"{tmp_path}/process"
    )
    figures = [37, 12 * 1024, 250.5, 61, 0x20]
    assert found == {"12": [*figures, []], "10": [*figures, [4711]]}


def test_the_server_of_mps_is_no_process_of_somebody(tmp_path: Path) -> None:
    server = tmp_path / "nvidia-cuda-mps-server"
    copy(str(which("cat")), server)
    with subprocess.Popen([server], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write(b"it has its name\n")
        running.stdin.flush()
        running.stdout.readline()
        name = name_of_process(running.pid)
        running.stdin.close()
    assert name == MPS_SERVER
    assert name_of_process(running.pid) == ""


def test_a_gpu_that_hangs_delays_nobody_and_is_read_later(tmp_path: Path) -> None:
    """Its processes are not known then: whose they were, nobody can say."""
    hangs = tmp_path / "hangs"
    hangs.touch()
    script = f"""{READ}
reader._patience_s = 0.01
first = []
while not first:
    first = reader.read(gpus)
meanwhile = told(first), told(reader.read(gpus))
Path({str(hangs)!r}).unlink()
reader._patience_s = 30
print(json.dumps([*meanwhile, told(reader.read(gpus))]))
"""
    env = {"LD_LIBRARY_PATH": str(compiled_driver(tmp_path)), "GPU_COUNT": "3", "FIRST_GPU_HANGS_WITH": str(hangs)}
    first, meanwhile, later = ask(script, **env)
    assert [[*one] for one in (first, meanwhile, later)] == [["12"], [], ["10"]]
    assert later["10"][-1] is None


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="this machine has a driver")
def test_no_driver_means_no_gpus_and_nothing_to_wait_for() -> None:
    assert ask() == {"node": None, "free": [True, True, True], "minors": [[], None, None]}


@pytest.mark.parametrize(
    ("name", "gpu_type"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("Tesla P100-PCIE-16GB", "p100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GeForce RTX 3090 Ti", "rtx3090ti"),
        ("Quadro RTX 6000", "rtx6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000ada"),
    ],
)
def test_gpu_types_are_named_as_people_write_them(name: str, gpu_type: str) -> None:
    assert normal_gpu_type(name) == gpu_type
