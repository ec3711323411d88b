"""URLs of the pages."""

from django.urls import path
from django.views.generic import RedirectView

from scheduler_app.pages import (
    account,
    cluster,
    energy,
    home,
    job,
    jobs,
    new_job,
    policies,
    retention,
    rounds,
    secrets,
    trends,
    usage,
)

urlpatterns = [
    path("", home.home, name="home"),
    path("jobs", jobs.jobs, name="jobs"),
    path("jobs/new", new_job.new_job, name="new-job"),
    path("jobs/new/check", new_job.check_job, name="check-job"),
    path("jobs/cancel", jobs.cancel, name="cancel-jobs"),
    path("jobs/<uuid:pk>", job.job, name="job"),
    path("jobs/<uuid:pk>/log", job.raw_log, name="raw-log"),
    path("jobs/<uuid:pk>/would-start", job.would_start, name="would-start"),
    path("jobs/<uuid:pk>/<slug:verb>", jobs.act, name="act"),
    path("cluster", cluster.cluster, name="cluster"),
    path("nodes/<str:name>/<slug:verb>", cluster.act_on_node, name="act-on-node"),
    path("rounds", rounds.rounds, name="rounds"),
    path("rounds/<int:number>", rounds.round_opened, name="round"),
    path("rounds/<int:number>/replay", rounds.replay, name="replay"),
    path("policies", policies.policies, name="policies"),
    path("policies/<slug:name>/choose", policies.choose, name="choose-policy"),
    path("policies/history/<int:pk>/choose", policies.go_back, name="go-back"),
    path("fairness", trends.fairness_page, name="fairness"),
    path("utilization", trends.utilization_page, name="utilization"),
    path("energy", energy.energy_page, name="energy"),
    path("usage", usage.usage_page, name="usage"),
    path("retention", retention.retention_page, name="retention"),
    path("secrets", secrets.secrets, name="secrets"),
    path("secrets/<int:pk>/delete", secrets.delete, name="delete-secret"),
    path("tokens", account.tokens, name="tokens"),
    path("tokens/<int:pk>/revoke", account.revoke, name="revoke-token"),
    path("password", account.ChangePassword.as_view(), name="change-password"),
    path("audit", account.audit, name="audit"),
    path("favicon.ico", RedirectView.as_view(url="/static/motley/icon.svg", permanent=False), name="favicon"),
]
