"""Models: ledgers of GPU time and quotas, GPU readings, energy, durations of jobs, runs of retention."""

from accounting_app.models.duration_forecast import DurationForecast
from accounting_app.models.duration_model import DurationModel
from accounting_app.models.energy import NodeUse, SleepAdvice
from accounting_app.models.gpu_minute import GpuMinute
from accounting_app.models.ledger import DailyUsage, GpuTypeUsage, TeamBacklog, TeamUsage
from accounting_app.models.ledger_coverage import LedgerCoverage
from accounting_app.models.quota_hour import QuotaHour
from accounting_app.models.retention_run import RetentionRun
from accounting_app.models.team_month import TeamMonth

__all__ = [
    "DailyUsage",
    "DurationForecast",
    "DurationModel",
    "GpuMinute",
    "GpuTypeUsage",
    "LedgerCoverage",
    "NodeUse",
    "QuotaHour",
    "RetentionRun",
    "SleepAdvice",
    "TeamBacklog",
    "TeamMonth",
    "TeamUsage",
]
