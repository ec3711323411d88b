"""Registration of this machine with the GPUs that NVML reports; figures of unknown GPU types are left to be entered."""

from typing import Any

from cluster_app.errors import GpuTypeRetired, NodeRetired
from cluster_app.models import GpuType
from cluster_app.services import add_node
from engines.nvml import this_machine
from estimation.gpu_specifications import GPU_SPECIFICATIONS

LEAST_MEMORY_MIB = 1
"""Of an unknown type whose GPUs are all broken: no job that asks for memory is placed there."""


def register_this_machine() -> str | None:
    """Add this machine as a node and return what was found; None if NVML reports no GPU."""
    report = this_machine()
    if report is None or not report.gpus:
        return None
    reported = min((gpu.memory_mib for gpu in report.gpus if gpu.memory_mib), default=0)
    gpu_type = registered_gpu_type(report.gpu_type, reported)
    uuids = [gpu.uuid for gpu in report.gpus]
    try:
        add_node(report.name, gpu_type, gpus=len(uuids), cpus=report.cpus, memory_mib=report.memory_mib, uuids=uuids)
    except (GpuTypeRetired, NodeRetired) as error:
        return str(error)
    return f"{report.name}: {len(uuids)} x {report.gpu_type}{missing_in_words(gpu_type)}"


def registered_gpu_type(name: str, memory_mib: int) -> GpuType:
    """The GPU type of that name; a new one has the figures of the specification table.

    `memory_mib`: as the driver reports it; 0: it does not.
    """
    columns = {"memory_mib": LEAST_MEMORY_MIB} | gpu_type_columns(name)
    columns |= {"memory_mib": memory_mib} if memory_mib else {}
    gpu_type, _ = GpuType.objects.get_or_create(name=name, defaults=columns)
    return gpu_type


def gpu_type_columns(name: str) -> dict[str, Any]:
    """Columns of a `GpuType` from the specification table; empty for a type that is not in it."""
    if name not in GPU_SPECIFICATIONS:
        return {}
    entry = GPU_SPECIFICATIONS[name]
    return {
        "memory_mib": entry.spec.memory_mib,
        "tflops": entry.spec.tflops,
        "bandwidth_gbs": entry.spec.bandwidth_gbs,
        "power_w": entry.power_w,
        "price_per_hour": entry.price_per_hour or 0,
    }


def missing_in_words(gpu_type: GpuType) -> str:
    """The figures of the type that are still to be entered, and where."""
    missing = " and ".join(gpu_type.missing_figures)
    return f" (the {missing} of {gpu_type} are not known: enter them in the admin, under GPU types)" if missing else ""
