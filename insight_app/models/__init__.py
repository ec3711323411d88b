"""Models: forecasts of starts, ends and deadlines, lab runs with their traces, guards of policies."""

from insight_app.models.deadline_forecast import DeadlineForecast
from insight_app.models.forecast_run import ForecastRun
from insight_app.models.job_forecast import JobForecast
from insight_app.models.kept_forecast import KeptForecast
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
