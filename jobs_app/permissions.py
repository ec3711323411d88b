"""What a caller may do: reading, submitting, administering."""

from typing import TYPE_CHECKING

from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from jobs_app.authentication import JobToken
from jobs_app.models import ApiToken

if TYPE_CHECKING:  # REST framework imports the default permissions while its views are being imported
    from rest_framework.views import APIView


class InScope(BasePermission):
    """Signed in, and the token's scope covers the method; a job's own token may only read."""

    message = "The token's scope does not cover this."

    def has_permission(self, request: Request, view: "APIView") -> bool:
        if not request.user.is_authenticated:
            return False
        match request.auth:
            case JobToken() | ApiToken(scope=ApiToken.Scope.READ):
                return request.method in SAFE_METHODS
        return True


class NotForJobs(InScope):
    """As `InScope`, but a job's own token sees nothing here."""

    def has_permission(self, request: Request, view: "APIView") -> bool:
        return not isinstance(request.auth, JobToken) and super().has_permission(request, view)


class StaffChanges(NotForJobs):
    """Everybody reads; what changes the cluster or the policy needs staff, by token one of scope admin."""

    message = "Only an administrator may do this; a token needs the scope admin."

    def has_permission(self, request: Request, view: "APIView") -> bool:
        if not super().has_permission(request, view):
            return False
        return request.method in SAFE_METHODS or is_administrator(request)


def is_administrator(request: Request) -> bool:
    """Staff, by session or by a token of scope admin."""
    narrow = isinstance(request.auth, ApiToken) and request.auth.scope != ApiToken.Scope.ADMIN
    return bool(request.user.is_staff) and not narrow
