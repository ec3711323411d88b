"""URLs of a job's explanation and logs."""

from django.urls import path

from scheduler_app.api.jobs import ExplainView
from scheduler_app.api.logs import LogView

urlpatterns = [
    path("jobs/<uuid:pk>/explain", ExplainView.as_view(), name="job-explain"),
    path("jobs/<uuid:pk>/logs", LogView.as_view(), name="job-logs"),
]
