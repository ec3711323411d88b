"""Bearer-token authentication: API tokens of people and scripts, and tokens of running jobs."""

from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.core import signing
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from jobs_app.models import ApiToken
from jobs_app.models.team import digest_of
from jobs_app.tokens import JOB_PREFIX, JobToken

USED_AT_RESOLUTION = timedelta(minutes=1)


class BearerToken(BaseAuthentication):
    """`Authorization: Bearer <token>`."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken | JobToken] | None:
        scheme, _, text = get_authorization_header(request).decode("latin-1").partition(" ")
        if scheme.lower() != "bearer":
            return None
        return _job_token(text) if text.startswith(JOB_PREFIX) else _api_token(text.strip())

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="motley"'


def _api_token(text: str) -> tuple[User, ApiToken]:
    now = timezone.now()
    found = ApiToken.objects.filter(digest=digest_of(text)).select_related("user").order_by()
    token = next(iter(found), None)  # runs in every request: a query without ordering and conditions is compiled faster
    if token is None or not token.is_valid(now) or not token.user.is_active:
        raise AuthenticationFailed("The token is unknown, expired or revoked.")
    if token.used_at is None or now - token.used_at > USED_AT_RESOLUTION:
        ApiToken.objects.filter(pk=token.pk).update(used_at=now)
    return token.user, token


def _job_token(text: str) -> tuple[User, JobToken]:
    try:
        token = JobToken.verify(text)
    except signing.BadSignature as error:
        raise AuthenticationFailed("The signature of the job token is not valid.") from error
    if token is None:
        raise AuthenticationFailed("The job token has expired: its attempt ended, or the job's owner left the team.")
    return token.attempt.job.owner, token


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "jobs_app.authentication.BearerToken"
    name = "bearer"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}
