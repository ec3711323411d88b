"""Discovery of GPUs, through a driver library that is compiled here and answers as NVIDIA's does."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engines.nvml import normal_gpu_type

ROOT = Path(__file__).parent.parent.parent
DRIVER = r"""
#include <string.h>
#include <stdint.h>
typedef struct { unsigned long long total, free, used; } memory;
int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned flags) { return 0; }
const char *nvmlErrorString(int code) { return "gone"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)(uintptr_t)(index + 1); return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    *device = (void *)(uintptr_t)(uuid[4] - '0' + 1);
    return uuid[4] > '1' ? 6 : 0;
}
int nvmlDeviceGetName(void *device, char *name, unsigned size) { strncpy(name, "NVIDIA H200", size); return 0; }
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size) {
    strncpy(uuid, (uintptr_t)device == 1 ? "GPU-0" : "GPU-1", size);
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, memory *info) {
    info->total = 141ULL << 30;
    return (uintptr_t)device == 2 ? 15 : 0;  /* the second GPU is lost */
}
int processes(void *device, unsigned *count, void *infos) {
    unsigned room = *count;
    *count = (uintptr_t)device == 2;
    return *count > room ? 7 : 0;  /* 7: the list does not fit */
}
int nvmlDeviceGetComputeRunningProcesses_v2(void *d, unsigned *c, void *i) { return processes(d, c, i); }
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *c, void *i) { return processes(d, c, i); }
"""
ASK = """
import json
from dataclasses import asdict
from engines.nvml import device_is_free, this_machine
node = this_machine()
free = [device_is_free(uuid) for uuid in ("GPU-0", "GPU-1", "GPU-9")]
print(json.dumps({"node": node and asdict(node), "free": free}))
"""


def ask(**env: str) -> dict[str, object]:
    pytest.importorskip("pynvml")
    done = subprocess.run(
        [sys.executable, "-c", ASK], cwd=ROOT, env=os.environ | env, capture_output=True, text=True, check=True
    )
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What is found with a driver of two GPUs: one is free, the other lost while a process still computes on it."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc to compile the driver library with")
    place = tmp_path_factory.mktemp("driver")
    (place / "driver.c").write_text(DRIVER)
    library = "libnvidia-ml.so.1"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{library}", "-o", library, "driver.c"], cwd=place, check=True
    )
    return ask(LD_LIBRARY_PATH=str(place))


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


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="this machine has a driver")
def test_no_driver_means_no_gpus_and_nothing_to_wait_for() -> None:
    assert ask() == {"node": None, "free": [True, True, True]}


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
