"""Leases, rounds, claims, agents, GPU readings, engine tests, policies, forecasts, lab runs, usage, energy, windows."""

from scheduler_app.models.agent import Agent, AgentAttempt
from scheduler_app.models.deadline_forecast import DeadlineForecast
from scheduler_app.models.duration_forecast import DurationForecast
from scheduler_app.models.duration_model import DurationModel
from scheduler_app.models.energy import NodeUse, SleepAdvice
from scheduler_app.models.engine_probe import EngineProbe
from scheduler_app.models.forecast_run import ForecastRun
from scheduler_app.models.gpu_claim import GpuClaim
from scheduler_app.models.gpu_minute import GpuMinute
from scheduler_app.models.job_forecast import JobForecast
from scheduler_app.models.kept_forecast import KeptForecast
from scheduler_app.models.lab_run import LabRun, LabTrace
from scheduler_app.models.lease import SchedulerLease
from scheduler_app.models.ledger import DailyUsage, GpuTypeUsage, TeamBacklog, TeamUsage
from scheduler_app.models.policy_guard import PolicyGuard
from scheduler_app.models.policy_setting import PolicySetting, policy_names
from scheduler_app.models.quota_hour import QuotaHour
from scheduler_app.models.retention_run import RetentionRun
from scheduler_app.models.round import Round
from scheduler_app.models.set_aside import SetAside
from scheduler_app.models.team_month import TeamMonth
from scheduler_app.models.time_window import TimeWindow

__all__ = [
    "Agent",
    "AgentAttempt",
    "DailyUsage",
    "DeadlineForecast",
    "DurationForecast",
    "DurationModel",
    "EngineProbe",
    "ForecastRun",
    "GpuClaim",
    "GpuMinute",
    "GpuTypeUsage",
    "JobForecast",
    "KeptForecast",
    "LabRun",
    "LabTrace",
    "NodeUse",
    "PolicyGuard",
    "PolicySetting",
    "QuotaHour",
    "RetentionRun",
    "Round",
    "SchedulerLease",
    "SetAside",
    "SleepAdvice",
    "TeamBacklog",
    "TeamMonth",
    "TeamUsage",
    "TimeWindow",
    "policy_names",
]
