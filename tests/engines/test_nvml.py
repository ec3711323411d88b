"""Discovery of GPUs, through a driver library that is compiled here and answers as NVIDIA's does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engines.nvml import normal_gpu_type
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


def ask(script: str = ASK, **env: str) -> dict[str, object]:
    if os.environ.get("CI") != "true":
        pytest.importorskip("pynvml")
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=os.environ | env, capture_output=True, text=True, check=True
    )
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


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
    assert [(gpu["memory_mib"], gpu["healthy"]) for gpu in node["gpus"]] == [(141 * 1024, True), (0, False)]


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
    assert [(gpu["uuid"], gpu["healthy"]) for gpu in node["gpus"]] == [("GPU-0", True), ("GPU-1", False)]
    lost.touch()
    node = ask(**env)["node"]
    assert isinstance(node, dict)
    assert [gpu["uuid"] for gpu in node["gpus"]] == ["GPU-0"]


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
