"""Models: forecasts of starts, ends and deadlines, lab runs with their traces, guards of policies."""

from insight_app.models.forecasts import DeadlineForecast, ForecastRun, JobForecast, KeptForecast
from insight_app.models.lab_run import LabRun, LabTrace
from insight_app.models.policy_guard import PolicyGuard

__all__ = [
    "DeadlineForecast",
    "ForecastRun",
    "JobForecast",
    "KeptForecast",
    "LabRun",
    "LabTrace",
    "PolicyGuard",
]
