"""Invitations: an account without a password, and a link with which the person chooses one, once and in time."""

from contextlib import suppress
from datetime import datetime
from smtplib import SMTPException

from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.mail import send_mail
from django.db import IntegrityError, transaction

from audit_app.models import Action
from audit_app.services import note
from jobs_app.account_names import is_reserved, normal_name, same_name
from jobs_app.errors import NotAccepted
from jobs_app.models import Invitation, Team
from jobs_app.models.team import digest_of
from jobs_app.teams import refuse_others


@transaction.atomic
def invite(username: str, *, email: str, team: Team, lead: bool, actor: User, now: datetime) -> tuple[User, str]:
    """Create the account as a member of the team; return it with the secret of its link, which is shown once.

    An invitation that has not been accepted is made anew, with another link, by an administrator or whoever made it.
    The row of an account is locked before its invitation, here and where that is accepted, as the first single sign-on
    does, which ends it.
    """
    refuse_others(actor, team)
    username = normal_name(username)
    user = User.objects.select_for_update(no_key=True).filter(username=username).first()
    user = _new_account(username, email, actor) if user is None else _still_invited(user, actor)
    team.members.add(user)
    if lead:
        team.leads.add(user)
    there = Invitation.objects.filter(user=user).first()
    invitation = there or Invitation(user=user)
    text = invitation.set_text(now)
    invitation.invited_by = actor
    invitation.save(force_update=there is not None)
    role = "a lead" if lead else "a member"
    note(Action.PERSON_INVITE, actor=actor, target=username, target_id=user.pk, message=f"as {role} of {team}")
    return user, text


def _new_account(username: str, email: str, actor: User) -> User:
    if there := same_name(username):
        raise _taken(there)
    if is_reserved(username) and not actor.is_staff:
        raise NotAccepted("username", f"Only administrators invite somebody as {username}: choose another name.")
    if email and User.objects.filter(email__iexact=email).exists():
        raise NotAccepted("email", "An account has this mail address: add that one to the team, or leave this empty.")
    user = User(username=username, email=email)
    user.set_unusable_password()
    try:
        user.full_clean()
    except ValidationError as error:
        field, texts = next(iter(error.message_dict.items()))
        raise NotAccepted("email" if field == "email" else "username", " ".join(texts)) from error
    try:
        with transaction.atomic():
            user.save()
    except IntegrityError as error:  # somebody else has invited that person at the same moment
        raise _taken(username) from error
    return user


def _taken(username: str) -> NotAccepted:
    return NotAccepted("username", f"There is an account {username}: add it to the team, or choose another name.")


def _still_invited(user: User, actor: User) -> User:
    waiting = Invitation.objects.filter(user=user, used_at=None).first()
    has_joined = user.has_usable_password() or _is_linked(user)
    if waiting is None or has_joined or not (actor.is_staff or waiting.invited_by_id == actor.pk):
        raise _taken(user.username)
    return user


def _is_linked(user: User) -> bool:
    """Whether an identity of single sign-on has the account, which nobody else may choose a password of."""
    return bool(SocialAccount.objects.filter(user=user).exists())


def find_invitation(text: str) -> Invitation | None:
    """The invitation with this secret, open or not; None if there is none, or its account is disabled or linked."""
    invitations = Invitation.objects.select_related("user", "invited_by")
    found = invitations.filter(digest=digest_of(text.strip()), user__is_active=True).first()
    return None if found is None or _is_linked(found.user) else found


@transaction.atomic
def accept_invitation(invitation: Invitation, password: str, *, now: datetime) -> bool:
    """Set the first password of the account; False if the link was used, replaced or ended, or has expired."""
    user = User.objects.select_for_update(no_key=True).get(pk=invitation.user_id)
    open_now = Invitation.objects.filter(pk=invitation.pk, digest=invitation.digest, used_at=None, expires_at__gt=now)
    if not user.is_active or _is_linked(user) or not open_now.update(used_at=now):
        return False
    user.set_password(password)
    user.save(update_fields=["password"])
    invitation.user = user
    note(Action.PERSON_JOIN, actor=user, target=user.username, target_id=user.pk)
    return True


def mail_invitation(user: User, link: str) -> bool:
    """Send the link by mail; False where no mail server is set, the person has no address, or it was not accepted."""
    if not (settings.MOTLEY_EMAIL_URL and user.email):
        return False
    text = f"You are invited to Motley as {user.username}.\n\nChoose your password, within 7 days, here:\n{link}\n"
    with suppress(OSError, SMTPException):
        return bool(send_mail("Your invitation to Motley", text, None, [user.email]))
    return False
