"""The scheduler's lease, rounds, claims on GPUs, tests of engines, policy settings and usage ledger."""

from scheduler_app.models.engine_probe import EngineProbe
from scheduler_app.models.gpu_claim import GpuClaim
from scheduler_app.models.lease import SchedulerLease
from scheduler_app.models.ledger import GpuTypeUsage, TeamBacklog, TeamUsage
from scheduler_app.models.policy_setting import PolicySetting, policy_names
from scheduler_app.models.round import Round

__all__ = [
    "EngineProbe",
    "GpuClaim",
    "GpuTypeUsage",
    "PolicySetting",
    "Round",
    "SchedulerLease",
    "TeamBacklog",
    "TeamUsage",
    "policy_names",
]
