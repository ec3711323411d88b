"""The scheduler's leases, rounds, claims, tests of engines, policy settings, usage ledger, and what it set aside."""

from scheduler_app.models.engine_probe import EngineProbe
from scheduler_app.models.gpu_claim import GpuClaim
from scheduler_app.models.lease import SchedulerLease
from scheduler_app.models.ledger import GpuTypeUsage, TeamBacklog, TeamUsage
from scheduler_app.models.policy_setting import PolicySetting, policy_names
from scheduler_app.models.round import Round
from scheduler_app.models.set_aside import SetAside

__all__ = [
    "EngineProbe",
    "GpuClaim",
    "GpuTypeUsage",
    "PolicySetting",
    "Round",
    "SchedulerLease",
    "SetAside",
    "TeamBacklog",
    "TeamUsage",
    "policy_names",
]
