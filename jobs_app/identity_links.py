"""First link of a single sign-on identity to an account: nothing stays that somebody else could have set.

Whoever invited a person can have opened the link of the invitation, and knows the password and the tokens then. The
identity provider vouches for one person alone.
"""

from django.contrib.auth.models import User
from django.db import transaction

from audit_app.models import Action
from audit_app.services import note
from jobs_app.models import ApiToken, Invitation, NotificationTarget, Secret
from jobs_app.notifications.targets import delete_target
from jobs_app.secrets import delete_secret
from jobs_app.tokens import revoke_token


@transaction.atomic
def clear_for_link(user: User) -> list[str]:
    """End each way into the account, and what was prepared in it; return what has gone, in words.

    An account that an administrator made or invited keeps its secrets and targets: nobody else has had it.
    """
    is_of_a_lead = _was_invited_by_a_lead(user)
    gone = [*_end_invitation(user), *_end_password(user), *_revoke_tokens(user)]
    if is_of_a_lead:
        gone += _delete_prepared(user)
    note(Action.PERSON_LINK, actor=user, target=user.username, target_id=user.pk, message=_ended(gone))
    return gone


def _was_invited_by_a_lead(user: User) -> bool:
    """Also if the account of who invited has been deleted."""
    return Invitation.objects.filter(user=user).exclude(invited_by__is_staff=True).exists()


def _end_invitation(user: User) -> list[str]:
    """An open one could be made anew by who made it, and opened after the link."""
    deleted, _ = Invitation.objects.filter(user=user, used_at=None).delete()
    return ["the open invitation"] if deleted else []


def _end_password(user: User) -> list[str]:
    """Also where it cannot be used already: sessions end with each change of the stored text."""
    had_one = user.has_usable_password()
    user.set_unusable_password()
    user.save(update_fields=["password"])
    return ["the password"] if had_one else []


def _revoke_tokens(user: User) -> list[str]:
    valid = list(ApiToken.objects.filter(user=user, revoked_at=None))
    for token in valid:
        revoke_token(token)
    return [f"{len(valid)} API token{'s' if len(valid) > 1 else ''}"] if valid else []


def _delete_prepared(user: User) -> list[str]:
    """A target would send somebody else what the person's jobs do; a secret would have them use another's account."""
    targets, secrets = NotificationTarget.objects.filter(user=user), Secret.objects.filter(user=user)
    words = ["targets of notifications"] * targets.exists() + ["secrets"] * secrets.exists()
    for target in targets:
        delete_target(target, actor=user)
    for secret in secrets:
        delete_secret(secret, actor=user)
    return words


def _ended(gone: list[str]) -> str:
    return f"ended: {', '.join(gone)}" if gone else ""
