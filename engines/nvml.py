"""GPUs of this machine, queried from NVIDIA's driver by NVML; none without the driver or nvidia-ml-py."""

import os
import re
import socket
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Any

from engines.driver_questions import DriverIsLate, DriverQuestions
from engines.protocol import GpuReport, NodeFault, NodeReport
from engines.xid_errors import XidWatch

try:
    import pynvml
except ImportError:
    pynvml = None

MIB = 1024 * 1024
MPS_SERVER = "nvidia-cuda-mps-server"[:15]
"""As Linux shortens it; it stays on a GPU that several processes share, also between their runs."""
NO_HANDLE = "the driver gives no handle to it: it has fallen off the bus, say"
NO_ANSWER = "it does not answer the driver: it has fallen off the bus, say"
HANGS = "the driver does not answer"
DRIVER = DriverQuestions()
PATIENCE_S, FIRST_PATIENCE_S = 1.0, 10.0
"""An answer takes milliseconds; before the first the driver is loaded, which can take a second for each GPU."""
HANGS_AFTER_S = 30.0
"""Without an answer for so long, the GPUs are out of service."""
MOST_ERRORS = 2**63 - 1
"""Of a counter; a driver that cannot count says 2**64 - 1, which is no number of errors."""
ECC_ERRORS = "{} uncorrectable memory errors (ECC) since it was last reset"
_NOT_THE_MODEL = re.compile(
    r"nvidia|tesla|geforce|quadro|graphics|device|generation|edition|pci|pcie|sxm\d*|nvl|hbm\d\w*|\d+gb", re.IGNORECASE
)


class MachineWatch:
    """Reports on this machine though its driver may hang: then the last one, after a while with all GPUs at fault."""

    def __init__(self, *, patience_s: float = PATIENCE_S, hangs_after_s: float = HANGS_AFTER_S) -> None:
        self._patience_s, self._hangs_after_s = patience_s, hangs_after_s
        self._last: NodeReport | None = None
        self._heard_at_s: float | None = None

    def report(self) -> NodeReport | None:
        """None: it has no GPUs, or the driver has not answered yet."""
        patience_s = self._patience_s if self._heard_at_s is not None else FIRST_PATIENCE_S
        try:
            self._last = DRIVER.ask(this_machine, patience_s=patience_s)
        except DriverIsLate:
            return self._last_known()
        self._heard_at_s = monotonic()
        return self._last

    def _last_known(self) -> NodeReport | None:
        heard_at_s = self._heard_at_s
        if self._last is None or heard_at_s is None or monotonic() - heard_at_s < self._hangs_after_s:
            return self._last
        return replace(self._last, gpus=tuple(replace(gpu, fault=HANGS) for gpu in self._last.gpus))


def this_machine() -> NodeReport | None:
    """Report on this machine, None if it has no GPUs."""
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
    """Whether the driver lists no compute process on this GPU; True without a driver."""
    try:
        return DRIVER.ask(lambda: _is_free(uuid), patience_s=PATIENCE_S)
    except DriverIsLate:
        return False


def _is_free(uuid: str) -> bool:
    if not driver_is_there():
        return True
    try:
        return not compute_processes(pynvml.nvmlDeviceGetHandleByUUID(uuid))
    except pynvml.NVMLError:
        return False  # a GPU that does not respond is not given to the next job


def compute_processes(handle: Any) -> list[int]:
    """Processes that compute on this GPU, without MPS's server, which computes for others; raises `NVMLError`."""
    listed = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return [process.pid for process in listed if name_of_process(process.pid) != MPS_SERVER]


def name_of_process(pid: int) -> str:
    """The first 15 characters of its name; empty if it has ended, or is hidden from us."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return ""


def gpu_minors(uuids: Iterable[str]) -> list[int] | None:
    """Minor numbers of the device files of these GPUs; None if the driver does not say.

    Raises `NodeFault` if it does not answer: the job is to go elsewhere.
    """
    wanted = list(uuids)
    try:
        return DRIVER.ask(lambda: _minors(wanted), patience_s=PATIENCE_S) if wanted else []
    except DriverIsLate:
        raise NodeFault(HANGS) from None


def _minors(uuids: Iterable[str]) -> list[int] | None:
    if not driver_is_there():
        return None
    try:
        return [int(pynvml.nvmlDeviceGetMinorNumber(pynvml.nvmlDeviceGetHandleByUUID(uuid))) for uuid in uuids]
    except pynvml.NVMLError:
        return None


def node_name(hostname: str) -> str:
    """The host's name with only the characters that node names may have."""
    return re.sub(r"[^a-z0-9._-]", "-", hostname.lower()).lstrip("._-") or "this-machine"


def normal_gpu_type(name: str) -> str:
    """Short name of a GPU model: `NVIDIA A100-SXM4-80GB` is `a100`."""
    words = re.split(r"[\s_-]+", name.strip())
    return "".join(word for word in words if not _NOT_THE_MODEL.fullmatch(word)).lower()


def _gpus() -> list[tuple[str, GpuReport]]:
    if not driver_is_there():
        return []
    try:
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError:
        return []
    return [found for index in range(count) if (found := _gpu(index)) is not None]


_xids = XidWatch()
_seen: dict[int, tuple[str, GpuReport]] = {}
"""What each GPU last said of itself: of one that is lost, the driver may give not even its name."""


def _gpu(index: int) -> tuple[str, GpuReport] | None:
    """Model and report of a GPU; of one that is lost as it was, but unhealthy; None if it never answered."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid = _text(pynvml.nvmlDeviceGetUUID(handle))
        report = GpuReport(index, uuid=uuid, **_memory_and_fault(handle), **_critical_error(uuid, handle))
        _seen[index] = normal_gpu_type(_text(pynvml.nvmlDeviceGetName(handle))), report
    except pynvml.NVMLError:
        if index not in _seen:
            return None
        model, report = _seen[index]
        return model, replace(report, fault=NO_HANDLE)
    return _seen[index]


def _memory_and_fault(handle: Any) -> dict[str, Any]:
    """Memory of the GPU, and what is wrong with it: a GPU that has fallen off the bus answers only to its name."""
    try:
        memory_mib = pynvml.nvmlDeviceGetMemoryInfo(handle).total // MIB
    except pynvml.NVMLError:
        return {"fault": NO_ANSWER}
    errors = ecc_errors(handle)
    return {"memory_mib": memory_mib, "fault": ECC_ERRORS.format(errors) if errors else ""}


def _critical_error(uuid: str, handle: Any) -> dict[str, Any]:
    error = _xids.last(uuid, handle)
    return {} if error is None else {"xid": error.xid, "xid_at": error.at}


def ecc_errors(handle: Any) -> int | None:
    """Uncorrectable memory errors since the driver was loaded or the GPU was reset; None: it does not count them."""
    try:
        kind, since = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
        errors = int(pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, since))
    except pynvml.NVMLError:
        return None
    return errors if errors <= MOST_ERRORS else None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


@cache
def driver_is_there() -> bool:
    """Initialise NVML once: it can take a second for each GPU."""
    if pynvml is None:
        return False
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    return True
