"""Models: teams, people, tokens, secrets, notifications, code, jobs, sweeps, attempts, claims, rates, counters."""

from jobs_app.models.attempt import Attempt
from jobs_app.models.budget import Budget
from jobs_app.models.checkpoint_history import CheckpointHistory
from jobs_app.models.code_archive import CodeArchive
from jobs_app.models.gpu_claim import GpuClaim
from jobs_app.models.group_grant import GroupGrant
from jobs_app.models.idempotency_key import IdempotencyKey
from jobs_app.models.invitation import Invitation
from jobs_app.models.job import Job, JobArray, JobDependency, JobTag, Reason
from jobs_app.models.job_event import JobEvent
from jobs_app.models.notification import Notification, NotificationTarget
from jobs_app.models.personal_settings import PersonalSettings
from jobs_app.models.progress_curve import ProgressCurve
from jobs_app.models.recipe import Recipe, RecipeVersion
from jobs_app.models.recurring_job import RecurringJob, RecurringRun
from jobs_app.models.secret import Secret
from jobs_app.models.site_announcement import SiteAnnouncement
from jobs_app.models.sweep import Sweep, SweepTrial
from jobs_app.models.tally import Metric, Tally, Total
from jobs_app.models.team import ApiToken, Team
from jobs_app.models.team_quota import TeamQuota
from jobs_app.models.throughput import CpuRate, GradientNoise, MeasuredRate, Throughput

__all__ = [
    "ApiToken",
    "Attempt",
    "Budget",
    "CheckpointHistory",
    "CodeArchive",
    "CpuRate",
    "GpuClaim",
    "GradientNoise",
    "GroupGrant",
    "IdempotencyKey",
    "Invitation",
    "Job",
    "JobArray",
    "JobDependency",
    "JobEvent",
    "JobTag",
    "MeasuredRate",
    "Metric",
    "Notification",
    "NotificationTarget",
    "PersonalSettings",
    "ProgressCurve",
    "Reason",
    "Recipe",
    "RecipeVersion",
    "RecurringJob",
    "RecurringRun",
    "Secret",
    "SiteAnnouncement",
    "Sweep",
    "SweepTrial",
    "Tally",
    "Team",
    "TeamQuota",
    "Throughput",
    "Total",
]
