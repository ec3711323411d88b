"""Registration of this machine with the GPUs that NVML reports; figures of unknown GPU types are left to be entered."""

from typing import Any

from cluster_app.models import GpuType
from cluster_app.services import add_node
from engines.nvml import this_machine
from engines.protocol import NodeReport
from estimation.gpu_specifications import GPU_SPECIFICATIONS

LEAST_MEMORY_MIB = 1
"""Of an unknown type whose GPUs are all broken: no job that asks for memory is placed there."""


def register_this_machine() -> str | None:
    """Add this machine as a node and return what was found; None if NVML reports no GPU."""
    report = this_machine()
    if report is None or not report.gpus:
        return None
    gpu_type, _ = GpuType.objects.get_or_create(name=report.gpu_type, defaults=_columns_of(report))
    uuids = [gpu.uuid for gpu in report.gpus]
    add_node(report.name, gpu_type, gpus=len(uuids), cpus=report.cpus, memory_mib=report.memory_mib, uuids=uuids)
    return f"{report.name}: {len(uuids)} x {report.gpu_type}{_remedy(gpu_type)}"


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


def _columns_of(report: NodeReport) -> dict[str, Any]:
    """The specification, with the memory that the driver reports; a broken GPU reports none."""
    specified = {"memory_mib": LEAST_MEMORY_MIB} | gpu_type_columns(report.gpu_type)
    reported = [gpu.memory_mib for gpu in report.gpus if gpu.memory_mib]
    return specified | ({"memory_mib": min(reported)} if reported else {})


def _remedy(gpu_type: GpuType) -> str:
    missing = " and ".join(gpu_type.missing_figures)
    return f" (the {missing} of {gpu_type} are not known: enter them in the admin, under GPU types)" if missing else ""
