"""Grants to a person by groups of an identity provider."""

from django.conf import settings
from django.db import models

from jobs_app.models.team import Team


class GroupGrant(models.Model):
    """Memberships, and administrator's rights, granted by groups: the next login may take them back."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.CASCADE, related_name="group_grant"
    )
    teams = models.ManyToManyField(Team, related_name="+")
    administrator = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"{self.user_id}: {', '.join(map(str, self.teams.all()))}"
