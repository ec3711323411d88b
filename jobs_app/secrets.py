"""Secrets: encrypt them by Fernet, store, delete and rotate them, and decrypt those that a job names.

Keys are texts (`MOTLEY_SECRETS_KEYS`), of which the first encrypts and all decrypt; a Fernet key is the SHA-256 of one.
"""

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from audit_app.models import Action
from audit_app.services import note
from jobs_app.ended_logins import refuse_ended_login
from jobs_app.errors import JobsError, NotAllowed
from jobs_app.models import Attempt, Job, Secret, Team

LEAST_CHARACTERS = 8
"""Shorter ones could not be masked in logs: too much of them would be hidden."""
MOST_BYTES = 32 * 1024
ROWS = 500


class SecretGone(JobsError):
    """A secret that the job names does not exist any more, or cannot be decrypted with the keys of this service."""

    code = "no_such_secret"


@transaction.atomic
def set_secret(name: str, value: str, *, team: Team | None, actor: User) -> Secret:
    """Store the value for the team, of which the actor is a member, or for the actor; it replaces the one before.

    Raises `LoginEnded` for one of the actor, whose account may be another person's by now.
    """
    _refuse_stranger(team, actor)
    if team is None:
        refuse_ended_login(actor)
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


@dataclass(frozen=True)
class UsableSecrets:
    """The secrets that some jobs name, read at once; each job gets those that its owner and team may use."""

    of_owner: Mapping[tuple[int, str], Secret]
    of_team: Mapping[tuple[int, str], Secret]
    members: frozenset[tuple[int, int]]
    """Owner and team."""

    @classmethod
    def read(cls, jobs: Iterable[Job]) -> "UsableSecrets":
        """At most two queries; none if no job names a secret."""
        naming = [job for job in jobs if job.secrets]
        if not naming:
            return cls({}, {}, frozenset())
        owners, teams = {job.owner_id for job in naming}, {job.team_id for job in naming}
        names = {name for job in naming for name in job.secrets}
        found = list(Secret.objects.filter(Q(user__in=owners) | Q(team__in=teams), name__in=names))
        both = Team.members.through.objects.filter(user__in=owners, team__in=teams)
        return cls(
            {(secret.user_id, secret.name): secret for secret in found if secret.user_id is not None},
            {(secret.team_id, secret.name): secret for secret in found if secret.team_id is not None},
            frozenset(both.values_list("user", "team")),
        )

    def of(self, job: Job) -> dict[str, str]:
        """Values by name; raises `SecretGone`."""
        return {name: _decrypted(self._find(job, name)) for name in job.secrets}

    def are_personal(self, job: Job) -> bool:
        """Whether one of them is of the job's owner alone."""
        return any((job.owner_id, name) in self.of_owner for name in job.secrets)

    def _find(self, job: Job, name: str) -> Secret:
        """The owner's secret, else that of the team, which is for its members only."""
        if own := self.of_owner.get((job.owner_id, name)):
            return own
        if (job.owner_id, job.team_id) in self.members and (ours := self.of_team.get((job.team_id, name))):
            return ours
        text = f"The secret {name} was deleted, or the owner of the job is no longer in its team."
        raise SecretGone(f"{text} Set it again, and submit the job again.")


def refuse_session_beside_secrets(attempt: Attempt, user: User) -> None:
    """Raise `NotAllowed` where the user would see secrets of the job's owner, in the environment of its processes.

    What was launched is recorded after the launch, which a crash may have prevented: secrets of now count, too.
    """
    job = attempt.job
    if user.pk == job.owner_id or not (attempt.personal_secrets or UsableSecrets.read([job]).are_personal(job)):
        return
    raise NotAllowed(
        f"The job has secrets of {job.owner} alone, which a session could read: only {job.owner} opens one."
    )


def missing_secrets(names: Iterable[str], owner: User, team: Team) -> list[str]:
    """The names that neither the owner nor the team has."""
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


def seal(text: str) -> str:
    """The text encrypted with the first key, for data that is stored in the database for a short time."""
    return _box().encrypt(text.encode()).decode()


def unseal(sealed: str) -> str:
    """The text that was sealed; raises `SecretGone` if its key is no longer here."""
    try:
        return _box().decrypt(sealed.encode()).decode()
    except InvalidToken:
        raise SecretGone("It was encrypted with a key that MOTLEY_SECRETS_KEYS no longer has.") from None


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
