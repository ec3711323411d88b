"""Password forms that write the password alone: what else has changed in the account since it was read stays."""

from typing import TYPE_CHECKING

from django.contrib.auth.forms import AdminPasswordChangeForm, PasswordChangeForm
from django.contrib.auth.models import User
from django.db import transaction

from jobs_app.ended_logins import refuse_changed_password

if TYPE_CHECKING:
    from django.contrib.auth.forms import SetPasswordForm

    Base = SetPasswordForm[User]
else:
    Base = object


class PasswordAlone(Base):
    """Mixin of a form for a password."""

    def save(self, commit: bool = True) -> User:
        user: User = super().save(commit=False)
        if commit:
            user.save(update_fields=["password"])
        return user


class AccountPasswordForm(PasswordAlone, AdminPasswordChangeForm):  # type: ignore[type-arg]
    """Password of an account in the administration."""


class OwnPasswordForm(PasswordAlone, PasswordChangeForm):
    """Password of the person who is logged in.

    Saving raises `LoginEnded` if the old password, which was checked, is not that of the account any more: another
    person may have it by then.
    """

    @transaction.atomic
    def save(self, commit: bool = True) -> User:
        refuse_changed_password(self.user)
        return super().save(commit)
