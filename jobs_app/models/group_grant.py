"""What the groups of an identity provider have granted a person."""

from django.conf import settings
from django.db import models


class GroupGrant(models.Model):
    """Teams by name, and whether they are an administrator by a group: what the next login may take back."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.CASCADE, related_name="group_grant"
    )
    teams = models.JSONField(default=list)
    administrator = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"{self.user_id}: {', '.join(self.teams)}"
