"""Permissions of callers over REST: which methods their token covers, and which jobs they see."""

from typing import TYPE_CHECKING
from uuid import UUID

from django.contrib.auth.models import User
from django.utils import timezone
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from jobs_app.models import ApiToken, Attempt, Job
from jobs_app.models.job import JobQuerySet
from jobs_app.tokens import JobToken

if TYPE_CHECKING:  # REST framework imports the default permissions while its views are being imported
    from rest_framework.views import APIView


class InScope(BasePermission):
    """Logged in, and the token's scope covers the method; a job token may only read."""

    message = "The scope of the token does not allow this."

    def has_permission(self, request: Request, view: "APIView") -> bool:
        if not request.user.is_authenticated:
            return False
        match request.auth:
            case JobToken() | ApiToken(scope=ApiToken.Scope.READ):
                return request.method in SAFE_METHODS
        return True


class NotForJobs(InScope):
    """As `InScope`, but job tokens have no access."""

    def has_permission(self, request: Request, view: "APIView") -> bool:
        return not isinstance(request.auth, JobToken) and super().has_permission(request, view)


class MaySubmit(NotForJobs):
    """As `NotForJobs`, and the token's scope is at least submit, whatever the method."""

    def has_permission(self, request: Request, view: "APIView") -> bool:
        narrow = isinstance(request.auth, ApiToken) and request.auth.scope == ApiToken.Scope.READ
        return not narrow and super().has_permission(request, view)


class StaffChanges(NotForJobs):
    """Everybody may read; changes need staff and, with a token, the scope admin."""

    message = "Only an administrator may do this, with a token of scope admin."

    def has_permission(self, request: Request, view: "APIView") -> bool:
        if not super().has_permission(request, view):
            return False
        return request.method in SAFE_METHODS or is_administrator(request)


def is_administrator(request: Request) -> bool:
    """Staff, by session or by a token of scope admin."""
    narrow = isinstance(request.auth, ApiToken) and request.auth.scope != ApiToken.Scope.ADMIN
    return bool(request.user.is_staff) and not narrow


def caller(request: Request) -> User:
    """The logged-in user, typed: `InScope` admits no other."""
    user: User = request.user  # type: ignore[assignment]
    return user


def still_sees(request: Request, job: UUID) -> bool:
    """Whether the caller of a long response may still see the job, by account, token and membership."""
    user = User.objects.filter(pk=caller(request).pk, is_active=True).first()
    if user is None:
        return False
    match request.auth:
        case JobToken(attempt=attempt):
            return Attempt.objects.live().filter(pk=attempt.pk, job=job).exists()
        case ApiToken(pk=token) if not ApiToken.objects.valid(timezone.now()).filter(pk=token).exists():
            return False
    return Job.objects.visible_to(user).filter(pk=job).exists()


def jobs_seen_by(request: Request) -> JobQuerySet:
    """Jobs that the caller may see: those of their teams; with a job's own token, that job."""
    if isinstance(request.auth, JobToken):
        return Job.objects.filter(pk=request.auth.attempt.job_id)
    return Job.objects.visible_to(caller(request))
