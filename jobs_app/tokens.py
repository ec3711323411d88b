"""Bearer tokens: issue and revoke API tokens of people and scripts, sign and verify tokens of running jobs."""

from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.core import signing
from django.db import transaction
from django.utils import timezone

from audit_app.models import Action
from audit_app.services import note
from jobs_app.ended_logins import lock_account, refuse_changed_password, refuse_ended_login
from jobs_app.errors import InvalidSpec
from jobs_app.models import ApiToken, Attempt, Job
from jobs_app.models.team import ApiTokenQuerySet

SALT = "motley.job"
MOST_TOKENS = 1000
"""Valid ones of a person: whoever finds one cannot make so many with it that they cannot be revoked together."""
JOB_PREFIX = "job_"


@transaction.atomic
def issue_token(
    user: User,
    *,
    name: str,
    scope: ApiToken.Scope,
    expires_at: datetime | None = None,
    made_by: ApiToken | None = None,
) -> str:
    """Create an API token and return its text, which is not stored and cannot be shown again.

    One that a token makes (`made_by`) expires with that one at the latest, and is revoked with it. `user` and `made_by`
    are as the request was authenticated: what has ended since makes no token that would outlive it.
    """
    if made_by is None:
        refuse_changed_password(user)  # sessions end with the password that they began with
    else:
        refuse_ended_login(user, made_by)
    if _valid().filter(user=user).count() >= MOST_TOKENS:
        raise InvalidSpec.at("", "too_many", f"You have {MOST_TOKENS:,} valid tokens already: revoke one first.")
    if made_by is not None and made_by.expires_at is not None:
        expires_at = min(expires_at or made_by.expires_at, made_by.expires_at)
    token = ApiToken(user=user, name=name, scope=scope, expires_at=expires_at, made_by=made_by)
    text = token.set_text()
    token.save()
    note_issued(token, actor=user)
    return text


def note_issued(token: ApiToken, *, actor: User) -> None:
    """Put the new token on the audit list."""
    whose = "" if token.user == actor else f", as {token.user}"
    note(Action.TOKEN_CREATE, actor=actor, target=token.name, target_id=token.pk, message=f"scope {token.scope}{whose}")


@transaction.atomic
def revoke_token(token: ApiToken, *, actor: User | None = None) -> None:
    """Revoke the token, and those that it made; requests with them are refused from now on.

    Default actor: its owner.
    """
    lock_account(token.user_id)
    _revoke(_with_those_made(token), actor=actor)


def revoke_tokens_of(user: User) -> int:
    """Revoke all tokens of the user, in the caller's transaction; returns how many were valid."""
    lock_account(user.pk)
    valid = list(_valid().filter(user=user).order_by("pk"))
    _revoke(valid, actor=user)
    return len(valid)


def _with_those_made(token: ApiToken) -> list[ApiToken]:
    """The token, unless it is revoked, and the valid ones that it made, one generation after another."""
    found, generation = list[ApiToken](), list(_not_revoked().filter(pk=token.pk))
    while generation:
        found += generation
        generation = list(_valid().filter(made_by__in=[made.pk for made in generation]).order_by("pk"))
    return found


def _revoke(tokens: list[ApiToken], *, actor: User | None) -> None:
    """The rows of their owners are locked: none of them is being revoked, or makes another one."""
    ApiToken.objects.filter(pk__in=[token.pk for token in tokens]).update(revoked_at=timezone.now())
    for token in tokens:
        note(Action.TOKEN_REVOKE, actor=actor or token.user, target=token.name, target_id=token.pk)


def _valid() -> ApiTokenQuerySet:
    return _not_revoked().valid(timezone.now())


def _not_revoked() -> ApiTokenQuerySet:
    return ApiToken.objects.select_related("user").filter(revoked_at=None)


@dataclass(frozen=True)
class JobToken:
    """Token of a running attempt: grants read access to its own job and to nothing else."""

    attempt: Attempt

    @classmethod
    def issue(cls, attempt_id: int) -> str:
        """Sign the attempt's id; nothing is stored, for the token is valid only while the attempt is live."""
        return JOB_PREFIX + signing.dumps(attempt_id, salt=SALT)

    @classmethod
    def verify(cls, text: str) -> "JobToken | None":
        """The token of a live attempt, None if that has ended or its owner may not see it; raises `BadSignature`."""
        attempt_id = signing.loads(text.removeprefix(JOB_PREFIX), salt=SALT)
        attempt = Attempt.objects.live().select_related("job__owner").filter(pk=attempt_id).first()
        return cls(attempt) if attempt and _is_of_the_team(attempt.job) else None


def _is_of_the_team(job: Job) -> bool:
    """Whether the job's owner has an account and is a member of its team, or staff."""
    return job.owner.is_active and Job.objects.visible_to(job.owner).filter(pk=job.pk).exists()
