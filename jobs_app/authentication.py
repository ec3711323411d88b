"""Who is calling: a person's or a script's token, or the token of a running job."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.core import signing
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from jobs_app.models import ApiToken, Attempt
from jobs_app.models.team import digest_of

SALT = "motley.job"
USED_AT_RESOLUTION = timedelta(minutes=1)


@dataclass(frozen=True)
class JobToken:
    """The right of a running attempt to look at its own job, and at nothing else."""

    attempt: Attempt

    @classmethod
    def issue(cls, attempt_id: int) -> str:
        return "job_" + signing.dumps(attempt_id, salt=SALT)


class BearerToken(BaseAuthentication):
    """`Authorization: Bearer <token>`."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken | JobToken] | None:
        scheme, _, text = get_authorization_header(request).decode("latin-1").partition(" ")
        if scheme.lower() != "bearer":
            return None
        return _job_token(text) if text.startswith("job_") else _api_token(text.strip())

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="motley"'


def _api_token(text: str) -> tuple[User, ApiToken]:
    now = timezone.now()
    found = ApiToken.objects.filter(digest=digest_of(text)).select_related("user").order_by()
    token = next(iter(found), None)  # in every request: a query with neither order nor conditions is soon put together
    if token is None or not token.is_valid(now) or not token.user.is_active:
        raise AuthenticationFailed("The token is unknown, expired or revoked.")
    if token.used_at is None or now - token.used_at > USED_AT_RESOLUTION:
        ApiToken.objects.filter(pk=token.pk).update(used_at=now)
    return token.user, token


def _job_token(text: str) -> tuple[User, JobToken]:
    try:
        attempt_id = signing.loads(text.removeprefix("job_"), salt=SALT)
    except signing.BadSignature as error:
        raise AuthenticationFailed("The job's token is not genuine.") from error
    attempt = Attempt.objects.live().select_related("job__owner").filter(pk=attempt_id).first()
    if attempt is None:
        raise AuthenticationFailed("The attempt that this token was made for has ended.")
    return attempt.job.owner, JobToken(attempt)


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "jobs_app.authentication.BearerToken"
    name = "bearer"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}
