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
