"""Secrets: encrypt them by Fernet, store, delete and rotate them, and decrypt those that a job names.

Keys are texts (`MOTLEY_SECRETS_KEYS`), of which the first encrypts and all decrypt; a Fernet key is the SHA-256 of one.
"""

from base64 import urlsafe_b64encode
from collections.abc import Iterable
from hashlib import sha256

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from audit_app.models import Action
from audit_app.services import note
from jobs_app.errors import JobsError, NotAllowed
from jobs_app.models import Job, Secret, Team

LEAST_CHARACTERS = 8
"""Shorter ones could not be masked in logs: too much of them would be hidden."""
MOST_BYTES = 32 * 1024
ROWS = 500


class SecretGone(JobsError):
    """A secret that the job names does not exist any more, or cannot be decrypted with the keys of this service."""

    code = "no_such_secret"


@transaction.atomic
def set_secret(name: str, value: str, *, team: Team | None, actor: User) -> Secret:
    """Store the value for the team, of which the actor is a member, or for the actor; it replaces the one before."""
    _refuse_stranger(team, actor)
    owner = None if team else actor
    facts = {"encrypted": _box().encrypt(value.encode()).decode(), "changed_at": timezone.now(), "changed_by": actor}
    secret, _ = Secret.objects.update_or_create(team=team, user=owner, name=name, defaults=facts)
    note(Action.SECRET_SET, actor=actor, target=str(secret), target_id=secret.pk)
    return secret


@transaction.atomic
def delete_secret(secret: Secret, *, actor: User) -> None:
    """Delete it; jobs that name it and start later fail with its name."""
    if secret.team is not None:
        _refuse_stranger(secret.team, actor)
    note(Action.SECRET_DELETE, actor=actor, target=str(secret), target_id=secret.pk)
    secret.delete()


def secrets_of(job: Job) -> dict[str, str]:
    """Values of the secrets that the job names; raises `SecretGone`."""
    if not job.secrets:
        return {}
    found = Secret.objects.usable_by(job.owner_id, job.team_id).filter(name__in=job.secrets)
    teams_first = sorted(found, key=lambda secret: secret.user_id is not None)
    by_name = {secret.name: secret for secret in teams_first}  # the owner's replaces that of the team
    if gone := [name for name in job.secrets if name not in by_name]:
        text = f"The secret {gone[0]} was deleted, or the owner of the job is no longer in its team."
        raise SecretGone(f"{text} Set it again, and submit the job again.")
    return {name: _decrypted(by_name[name]) for name in job.secrets}


def missing_secrets(names: Iterable[str], owner: User, team: Team) -> list[str]:
    """Those of the names that neither the owner nor the team has."""
    wanted = list(names)
    known = set(Secret.objects.usable_by(owner.pk, team.pk).filter(name__in=wanted).values_list("name", flat=True))
    return [name for name in wanted if name not in known]


def rotate_secrets() -> int:
    """Encrypt every secret with the first key; returns how many. Safe to run while the service runs."""
    count = 0
    for pk in Secret.objects.values_list("pk", flat=True).iterator(ROWS):
        with transaction.atomic():
            secret = Secret.objects.select_for_update().filter(pk=pk).first()
            if secret is not None:
                secret.encrypted = _box().encrypt(_decrypted(secret).encode()).decode()
                secret.save(update_fields=["encrypted"])
                count += 1
    return count


def _refuse_stranger(team: Team | None, actor: User) -> None:
    if team is not None and not team.members.filter(pk=actor.pk).exists():
        raise NotAllowed(f"Only members of the team {team} set and delete its secrets.")


def _decrypted(secret: Secret) -> str:
    try:
        return _box().decrypt(secret.encrypted.encode()).decode()
    except InvalidToken:
        text = f"The secret {secret.name} cannot be decrypted: set it again, or give MOTLEY_SECRETS_KEYS its key back."
        raise SecretGone(text) from None


def _box() -> MultiFernet:
    return MultiFernet([Fernet(urlsafe_b64encode(sha256(key.encode()).digest())) for key in _keys()])


def _keys() -> list[str]:
    return settings.MOTLEY_SECRETS_KEYS or [f"secrets:{settings.SECRET_KEY}"]
