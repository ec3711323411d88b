"""Models: ledgers of GPU time and quotas, GPU readings, energy, durations of jobs, runs of retention."""

from accounting_app.models.durations import DurationForecast, DurationModel
from accounting_app.models.energy import NodeUse, SleepAdvice
from accounting_app.models.gpu_minute import GpuMinute
from accounting_app.models.ledgers import (
    DailyUsage,
    GpuTypeUsage,
    LedgerCoverage,
    QuotaHour,
    TeamBacklog,
    TeamMonth,
    TeamUsage,
)
from accounting_app.models.retention_run import RetentionRun

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
