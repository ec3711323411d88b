"""URLs of messages of agents, a job's explanation, GPUs, logs and sessions, arrays, nodes' GPUs, members of teams, lab
runs, reports."""

from django.urls import path

from web.api.agent_messages import CheckpointsView, CodeView, JoinView, LogsView, ServerSessionView, SyncView
from web.api.arrays import ArrayView
from web.api.checkpoints import CheckpointsOfJobView
from web.api.curves import CurveView
from web.api.energy import EnergyView
from web.api.estimates import EstimatesView
from web.api.forecasts import DeadlineAccuracyView, ForecastAccuracyView, ForecastView, TeamForecastAccuracyView
from web.api.gpus import JobGpusView, NodeGpusView
from web.api.history import HistoryView
from web.api.job_files import FileView, FolderView
from web.api.job_graph import GraphView
from web.api.jobs import ExplainView
from web.api.lab_applying import LabApplyView, LabPreviewView
from web.api.logs import LogView
from web.api.merged_log import MergedLogView
from web.api.node_savings import NodeSavingsView
from web.api.receipts import ReceiptView
from web.api.report import ReportCsvView, ReportView
from web.api.sessions import SessionView
from web.api.team_members import InvitationsView, MemberLimitsView, TeamMembersView, TeamMemberView
from web.api.timeline import TimelineView
from web.api.usage import UsageCsvView, UsageView

urlpatterns = [
    path("agent/join", JoinView.as_view(), name="agent-join"),
    path("agent/sync", SyncView.as_view(), name="agent-sync"),
    path("agent/sessions/<str:key>", ServerSessionView.as_view(), name="agent-session"),
    path("agent/attempts/<str:attempt>/logs/<str:stream>/<int:rank>", LogsView.as_view(), name="agent-logs"),
    path("agent/attempts/<str:attempt>/code", CodeView.as_view(), name="agent-code"),
    path("agent/attempts/<str:attempt>/checkpoints", CheckpointsView.as_view(), name="agent-checkpoints"),
    path("jobs/<uuid:pk>/checkpoints", CheckpointsOfJobView.as_view(), name="job-checkpoints"),
    path("jobs/<uuid:pk>/curve", CurveView.as_view(), name="job-curve"),
    path("jobs/<uuid:pk>/explain", ExplainView.as_view(), name="job-explain"),
    path("jobs/<uuid:pk>/forecast", ForecastView.as_view(), name="job-forecast"),
    path("jobs/<uuid:pk>/graph", GraphView.as_view(), name="job-graph"),
    path("jobs/<uuid:pk>/receipt", ReceiptView.as_view(), name="job-receipt"),
    path("forecasts/accuracy", ForecastAccuracyView.as_view(), name="forecasts-accuracy"),
    path("forecasts/accuracy/deadlines", DeadlineAccuracyView.as_view(), name="forecasts-accuracy-deadlines"),
    path("forecasts/accuracy/teams", TeamForecastAccuracyView.as_view(), name="forecasts-accuracy-teams"),
    path("jobs/<uuid:pk>/gpus", JobGpusView.as_view(), name="job-gpus"),
    path("nodes/<str:name>/gpus", NodeGpusView.as_view(), name="node-gpus"),
    path("jobs/<uuid:pk>/session", SessionView.as_view(), name="job-session"),
    path("arrays/<uuid:pk>", ArrayView.as_view(), name="array"),
    path("estimates", EstimatesView.as_view(), name="estimates-accuracy"),
    path("energy", EnergyView.as_view(), name="energy-report"),
    path("timeline", TimelineView.as_view(), name="timeline-report"),
    path("history", HistoryView.as_view(), name="history-trace"),
    path("lab/node-savings", NodeSavingsView.as_view(), name="lab-node-savings"),
    path("lab/runs/<int:pk>/preview", LabPreviewView.as_view(), name="lab-run-preview"),
    path("lab/runs/<int:pk>/apply", LabApplyView.as_view(), name="lab-run-apply"),
    path("teams/<str:name>/members", TeamMembersView.as_view(), name="team-members"),
    path("teams/<str:name>/members/<str:username>", TeamMemberView.as_view(), name="team-member"),
    path("teams/<str:name>/member-limits", MemberLimitsView.as_view(), name="team-member-limits"),
    path("teams/<str:name>/invitations", InvitationsView.as_view(), name="team-invitations"),
    path("usage", UsageView.as_view(), name="usage-report"),
    path("usage.csv", UsageCsvView.as_view(), name="usage-csv"),
    path("report.csv", ReportCsvView.as_view(), name="report-csv"),
    path("report", ReportView.as_view(), name="monthly-report"),
    path("jobs/<uuid:pk>/files", FolderView.as_view(), name="job-files"),
    path("jobs/<uuid:pk>/files/content", FileView.as_view(), name="job-file-content"),
    path("jobs/<uuid:pk>/logs", LogView.as_view(), name="job-logs"),
    path("jobs/<uuid:pk>/merged-log", MergedLogView.as_view(), name="job-merged-log"),
]
