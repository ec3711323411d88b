"""Secrets of teams and persons: values that jobs get as environment variables, and that nobody can read back."""

from django.conf import settings
from django.contrib.auth.models import User
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

from jobs_app.models.team import Team

NAME = r"[A-Za-z_][A-Za-z0-9_]{0,99}"
IS_NAME = RegexValidator(rf"\A{NAME}\Z", "Write the name of an environment variable: letters, digits and '_'.")


class SecretQuerySet(models.QuerySet["Secret"]):
    def visible_to(self, user: User) -> "SecretQuerySet":
        """The user's own, and those of the user's teams; of other teams for staff, too."""
        return self.filter(Q(user=user) | Q(team__isnull=False) if user.is_staff else _of(user)).distinct()

    def usable_by(self, user: int, team: int) -> "SecretQuerySet":
        """Secrets for a job of this owner (by primary key) and team; the team's only if the owner is a member."""
        return self.filter(Q(user=user) | Q(team=team, team__members=user))


def _of(user: User) -> Q:
    return Q(user=user) | Q(team__members=user)


class Secret(models.Model):
    """An encrypted value; of a name that both have, a job gets its owner's, not its team's."""

    team = models.ForeignKey(Team, null=True, blank=True, on_delete=models.CASCADE, related_name="secrets")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="secrets"
    )
    name = models.CharField(max_length=100, validators=[IS_NAME])
    encrypted = models.TextField(editable=False)
    changed_at = models.DateTimeField(default=timezone.now)
    changed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    objects = SecretQuerySet.as_manager()

    class Meta:
        ordering = ("name", "id")
        constraints = [
            models.CheckConstraint(
                condition=Q(team=None, user__isnull=False) | Q(team__isnull=False, user=None), name="secret_of_one"
            ),
            models.UniqueConstraint(fields=("team", "name"), condition=Q(user=None), name="secret_once_per_team"),
            models.UniqueConstraint(fields=("user", "name"), condition=Q(team=None), name="secret_once_per_user"),
        ]

    def __str__(self) -> str:
        return f"{self.name} of {self.team or self.user}"
