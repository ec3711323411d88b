"""Refusal of requests whose login has ended while they were under way.

The row of the user is locked before any other, as it is where an identity is linked to the account.
"""

from django.contrib.auth.models import User

from jobs_app.errors import LoginEnded
from jobs_app.models import ApiToken


def refuse_ended_login(user: User, token: ApiToken | None = None) -> None:
    """Raise `LoginEnded` if the user has been deactivated, or can log in by password no more, since it was read.

    The second is so after the account was linked to single sign-on. A password that was changed is no reason: it ends
    neither API tokens nor the session in which it is changed. With the token of the request, also if it was revoked.
    None of it happens from now on until the end of the transaction.
    """
    now = lock_account(user.pk)
    ended = not now.is_active or (now.password != user.password and not now.has_usable_password())
    if token is not None:
        ended = ended or not ApiToken.objects.select_for_update(no_key=True).filter(pk=token.pk, revoked_at=None)
    if ended:
        raise LoginEnded


def refuse_changed_password(user: User) -> None:
    """Raise `LoginEnded` if the password is another than when the user was read, or the user has been deactivated.

    Of what a session does that is to outlive it. Neither happens from now on until the end of the transaction.
    """
    now = lock_account(user.pk)
    if now.password != user.password or not now.is_active:
        raise LoginEnded


def lock_account(pk: int) -> User:
    """The row of the user as it is now, locked until the end of the transaction."""
    return User.objects.select_for_update(no_key=True).get(pk=pk)
