"""What NVIDIA's driver says of this machine; no driver, or no nvidia-ml-py, means no GPUs."""

import os
import re
import socket
from collections import Counter
from functools import cache
from typing import Any

from engines.protocol import GpuReport, NodeReport

try:
    import pynvml
except ImportError:
    pynvml = None

MIB = 1024 * 1024
_NOT_THE_MODEL = re.compile(
    r"nvidia|tesla|geforce|quadro|graphics|device|generation|edition|pci|pcie|sxm\d*|nvl|hbm\d\w*|\d+gb", re.IGNORECASE
)


def this_machine() -> NodeReport | None:
    """This machine with its GPUs, None where there are none."""
    gpus = _gpus()
    if not gpus:
        return None
    gpu_type, _ = Counter(model for model, _ in gpus).most_common(1)[0]  # a node is of one type
    return NodeReport(
        name=node_name(socket.gethostname()),
        gpu_type=gpu_type,
        gpus=tuple(report for model, report in gpus if model == gpu_type),
        cpus=len(os.sched_getaffinity(0)),
        memory_mib=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // MIB,
    )


def device_is_free(uuid: str) -> bool:
    """Whether the driver knows of no process that computes on this GPU; True where there is no driver to ask."""
    if not _driver_is_there():
        return True
    try:
        return not pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByUUID(uuid))
    except pynvml.NVMLError:
        return False  # a GPU that does not answer is not given to the next job


def node_name(hostname: str) -> str:
    """The host's name in the letters that names of nodes have."""
    return re.sub(r"[^a-z0-9._-]", "-", hostname.lower()).lstrip("._-") or "this-machine"


def normal_gpu_type(name: str) -> str:
    """The model in one short word, as people write it: `NVIDIA A100-SXM4-80GB` is `a100`."""
    words = re.split(r"[\s_-]+", name.strip())
    return "".join(word for word in words if not _NOT_THE_MODEL.fullmatch(word)).lower()


def _gpus() -> list[tuple[str, GpuReport]]:
    if not _driver_is_there():
        return []
    try:
        return [_gpu(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return []


def _gpu(index: int) -> tuple[str, GpuReport]:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    report = GpuReport(index, uuid=_text(pynvml.nvmlDeviceGetUUID(handle)), **_memory_and_health(handle))
    return normal_gpu_type(_text(pynvml.nvmlDeviceGetName(handle))), report


def _memory_and_health(handle: Any) -> dict[str, Any]:
    """A GPU that has fallen off the bus still has a name, and answers nothing else."""
    try:
        return {"memory_mib": pynvml.nvmlDeviceGetMemoryInfo(handle).total // MIB}
    except pynvml.NVMLError:
        return {"healthy": False}


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


@cache
def _driver_is_there() -> bool:
    """Asked once: to open the driver can take a second for each GPU."""
    if pynvml is None:
        return False
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    return True
