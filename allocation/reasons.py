"""Why a job is waiting: the closed list of reasons, structural before capacity."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class ReasonCode(StrEnum):
    """Every reason that a queued job may be given; the first that holds is the headline."""

    HELD = "held"
    DEPENDENCY = "dependency"
    BEGIN_TIME = "begin_time"
    NO_SUCH_GPU = "no_such_gpu"
    GPU_MEMORY_TOO_SMALL = "gpu_memory_too_small"
    GANG_TOO_LARGE = "gang_too_large"
    QUOTA = "quota"
    BUDGET = "budget"
    NO_HEALTHY_NODE = "no_healthy_node"
    MAINTENANCE = "maintenance"
    INSUFFICIENT_GPUS = "insufficient_gpus"
    FRAGMENTED = "fragmented"
    OUTBID = "outbid"
    AWAITING_RELEASE = "awaiting_release"
    NEXT_ROUND = "next_round"


@dataclass(frozen=True)
class Reason:
    """A code, the numbers behind it, such as needed, free and used, and the row of the job that stood before it."""

    code: ReasonCode
    numbers: Mapping[str, float] = field(default_factory=dict)
    rival: int | None = None
