"""Larger requests for a job that failed or reached its time limit: changes of its spec, each for one cause."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cluster_app.models import GpuType
from jobs_app.models import Job
from jobs_app.submission.conversion import spec_of
from jobs_app.submission.units import Memory, Quantity, Seconds

Spec = Mapping[str, Any]


class Shortage(StrEnum):
    """Resource that a job ran out of."""

    TIME = "time"
    MEMORY = "memory"
    GPU_MEMORY = "GPU memory"


FIELDS_AGAINST: dict[Shortage, frozenset[str]] = {
    Shortage.TIME: frozenset({"gpus", "replicas", "time_limit"}),
    Shortage.MEMORY: frozenset({"memory_per_gpu"}),
    Shortage.GPU_MEMORY: frozenset({"gpus", "replicas", "gpu_memory"}),
}


@dataclass(frozen=True)
class LargerRequest:
    """One field of the spec with a larger value."""

    field: str
    value: Any
    words: str


def read_larger_requests(job: Job) -> list[LargerRequest]:
    """Larger requests with which the job may succeed; none unless it failed or reached its time limit."""
    if job.state not in (Job.State.FAILED, Job.State.TIMED_OUT):
        return []
    last = job.attempts.select_related("gpu_type").order_by("number").last()
    sizes_mib = dict(GpuType.objects.current().values_list("name", "memory_mib"))
    return larger_requests(spec_of(job), ran_on_mib=last.gpu_type.memory_mib if last else 0, sizes_mib=sizes_mib)


def requests_against(shortage: Shortage | None, job: Job) -> list[LargerRequest]:
    """Larger requests that remove the shortage; none if no shortage is known, as for a job with a bug."""
    if shortage is None:
        return []
    return [one for one in read_larger_requests(job) if one.field in FIELDS_AGAINST[shortage]]


def larger_requests(spec: Spec, *, ran_on_mib: int, sizes_mib: Mapping[str, int]) -> list[LargerRequest]:
    """Twice the GPUs, memory and time limit that were asked for, and GPUs with more memory than those it ran on.

    `ran_on_mib`: memory of such a GPU, 0 if it never ran; `sizes_mib`: memory of a GPU of each type.
    """
    allowed = [mib for name, mib in sizes_mib.items() if name in spec.get("gpu_types", sizes_mib)]
    asked = (
        _twice_the_gpus(spec),
        _next_gpu_memory(ran_on_mib, allowed),
        _twice(spec, "memory_per_gpu", Memory(), "{} of memory per GPU"),
        _twice(spec, "time_limit", Seconds(), "a time limit of {}"),
    )
    return [one for one in asked if one]


def _twice_the_gpus(spec: Spec) -> LargerRequest:
    field = "replicas" if "replicas" in spec else "gpus"
    given = spec[field]
    size = {name: 2 * count for name, count in given.items()} if isinstance(given, Mapping) else 2 * given
    count = f"{size['min']} to {size['max']}" if isinstance(size, Mapping) else f"{size}"
    return LargerRequest(field, size, f"{count} {'replicas' if field == 'replicas' else 'GPUs'}")


def _next_gpu_memory(ran_on_mib: int, sizes_mib: Iterable[int]) -> LargerRequest | None:
    """The smallest GPU memory larger than that of the GPUs on which the job ran."""
    more = min((mib for mib in sizes_mib if mib > ran_on_mib), default=0)
    if not (ran_on_mib and more):
        return None
    size = Memory().to_representation(more)
    return LargerRequest("gpu_memory", size, f"GPUs of at least {_spaced(size)}")


def _twice(spec: Spec, field: str, unit: Quantity, words: str) -> LargerRequest | None:
    if field not in spec:
        return None
    value = unit.to_representation(2 * unit.to_internal_value(spec[field]))
    return LargerRequest(field, value, words.format(_spaced(value)))


def _spaced(quantity: str) -> str:
    """The quantity with a space before its unit: `40GiB` becomes `40 GiB`."""
    return re.sub(r"(?<=\d)(?=[A-Za-z])", " ", quantity)
