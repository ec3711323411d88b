"""URL routes of the service."""

from typing import NoReturn

from allauth.account.models import EmailAddress
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from axes.models import AccessFailureLog, AccessLog
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.views import LoginView, LogoutView
from django.urls import include, path
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.decorators import api_view, permission_classes
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter

from config import (
    openid_connect,
    schema,  # noqa: F401 - what it says of bodies is found when it has been imported
)
from web.api.account import MeView, TokenViewSet
from web.api.agents import AgentViewSet
from web.api.announcements import AnnouncementViewSet
from web.api.code import CodeViewSet
from web.api.engines import EngineViewSet
from web.api.gpu_types import GpuTypeViewSet
from web.api.job_history import AttemptViewSet, CommentViewSet, EventViewSet
from web.api.jobs import JobViewSet
from web.api.lab import LabRunViewSet
from web.api.nodes import NodeViewSet
from web.api.notifications import NotificationTargetViewSet, NotificationViewSet
from web.api.policies import PolicyViewSet
from web.api.recipes import RecipeViewSet
from web.api.recurring_jobs import RecurringJobViewSet
from web.api.rounds import RoundViewSet
from web.api.secrets import SecretViewSet
from web.api.storage import StorageViewSet
from web.api.sweeps import SweepViewSet
from web.api.teams import TeamViewSet
from web.api.throughputs import ThroughputViewSet
from web.api.windows import WindowViewSet
from web.pages import health


@extend_schema(exclude=True)
@api_view(["GET", "POST", "PUT", "PATCH", "DELETE"])
@permission_classes([])
def no_such_route(request: Request, unknown: str) -> NoReturn:
    """Problem document for an unknown path below /api/v1/."""
    raise NotFound(f"There is no resource /api/v1/{unknown}. See /api/docs/.")


@extend_schema(exclude=True)
@api_view(["GET"])
@permission_classes([])
def index(request: Request) -> Response:
    """Addresses of the lists that REST begins with, and of its description."""
    lists = {prefix: f"/api/v1/{prefix}" for prefix, *_ in router.registry}
    return Response({"me": "/api/v1/me", **lists, "schema": "/api/schema/", "docs": "/api/docs/"})


router = SimpleRouter(trailing_slash=False)
router.register("jobs", JobViewSet, basename="job")
router.register("recipes", RecipeViewSet, basename="recipe")
router.register("recurring-jobs", RecurringJobViewSet, basename="recurring-job")
router.register("sweeps", SweepViewSet, basename="sweep")
router.register("nodes", NodeViewSet, basename="node")
router.register("announcements", AnnouncementViewSet, basename="announcement")
router.register("engines", EngineViewSet, basename="engine")
router.register("agents", AgentViewSet, basename="agent")
router.register("storage", StorageViewSet, basename="storage")
router.register("windows", WindowViewSet, basename="window")
router.register("rounds", RoundViewSet, basename="round")
router.register("gpu-types", GpuTypeViewSet, basename="gpu-type")
router.register("teams", TeamViewSet, basename="team")
router.register("policies", PolicyViewSet, basename="policy")
router.register("throughputs", ThroughputViewSet, basename="throughput")
router.register("secrets", SecretViewSet, basename="secret")
router.register("notification-targets", NotificationTargetViewSet, basename="notification-target")
router.register("notifications", NotificationViewSet, basename="notification")
router.register("lab/runs", LabRunViewSet, basename="lab-run")
router.register("tokens", TokenViewSet, basename="token")

CODE = "api/v1/teams/<str:team>/code/<str:digest>"

handler400 = "config.problems.bad_request"
handler403 = "config.problems.forbidden"
handler404 = "config.problems.not_found"
handler500 = "config.problems.broken"

admin.site.site_header = "Motley administration"
admin.site.site_title = "Motley administration"
admin.site.index_title = "Administration"
apps.get_app_config("axes").verbose_name = "Sign-ins"
admin.site.unregister([AccessFailureLog, AccessLog])  # nothing is in them: the audit list has it
admin.site.unregister([EmailAddress, SocialAccount, SocialApp, SocialToken])  # rows of the service, and not used

urlpatterns = [
    path("admin/", admin.site.urls),
    path("login/", LoginView.as_view(template_name="registration/login.html"), name="login"),
    path("login/oidc", openid_connect.begin, name="oidc-begin"),
    path("login/oidc/callback", openid_connect.end, name="oidc-end"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("api/v1/jobs/<uuid:pk>/events", EventViewSet.as_view({"get": "list"}), name="job-events"),
    path("api/v1/jobs/<uuid:pk>/comments", CommentViewSet.as_view({"post": "create"}), name="job-comments"),
    path(
        "api/v1/jobs/<uuid:pk>/comments/<int:event>", CommentViewSet.as_view({"delete": "destroy"}), name="job-comment"
    ),
    path("api/v1/jobs/<uuid:pk>/attempts", AttemptViewSet.as_view({"get": "list"}), name="job-attempts"),
    path("api/v1/teams/<str:team>/code", CodeViewSet.as_view({"get": "list"}), name="code-list"),
    path(CODE, CodeViewSet.as_view({"get": "retrieve", "put": "update"}), name="code"),
    path(f"{CODE}/archive", CodeViewSet.as_view({"get": "archive"}), name="code-archive"),
    path("api/v1/", index, name="api-index"),
    path("api/v1/me", MeView.as_view(), name="me"),
    path("api/v1/", include("web.api.urls")),
    path("api/v1/", include(router.urls)),
    path("api/v1/<path:unknown>", no_such_route),
    path("api/schema/", SpectacularAPIView.as_view(), name="schema"),
    path("api/docs/", SpectacularSwaggerSplitView.as_view(url_name="schema"), name="docs"),
    path("metrics", health.metrics, name="metrics"),
    path("livez", health.livez, name="livez"),
    path("readyz", health.readyz, name="readyz"),
    path("healthz/scheduler", health.scheduler, name="healthz-scheduler"),
    path("", include("web.pages.urls")),
]
