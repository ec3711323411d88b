"""Models: leases, rounds, policy settings, quarantined items, time windows."""

from scheduler_app.models.loops import SchedulerLease, SetAside
from scheduler_app.models.policy_setting import PolicySetting, policy_names
from scheduler_app.models.round import Round
from scheduler_app.models.time_window import TimeWindow

__all__ = [
    "PolicySetting",
    "Round",
    "SchedulerLease",
    "SetAside",
    "TimeWindow",
    "policy_names",
]
