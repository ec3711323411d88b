"""Refusal of requests whose login has ended while they were under way.

The row of the user is locked before any other, as it is where an identity is linked to the account.
"""

from django.contrib.auth.models import User

from jobs_app.errors import LoginEnded
from jobs_app.models import ApiToken


def refuse_ended_login(user: User, token: ApiToken | None = None) -> None:
    """Raise `LoginEnded` if sessions of the user have ended, or the token was revoked, since they were read.

    Neither happens from now on until the end of the transaction.
    """
    now = User.objects.select_for_update(no_key=True).get(pk=user.pk)
    ended = now.password != user.password or not now.is_active
    if token is not None:
        ended = ended or not ApiToken.objects.select_for_update(no_key=True).filter(pk=token.pk, revoked_at=None)
    if ended:
        raise LoginEnded
