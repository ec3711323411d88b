"""What a person has set for the pages."""

from django.conf import settings
from django.db import models

from cluster_app.models.validators import zone_is_known


class PersonalSettings(models.Model):
    """Settings of a person; without a row, those of the browser."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.CASCADE, related_name="personal_settings"
    )
    time_zone = models.CharField(
        max_length=50, blank=True, validators=[zone_is_known], help_text="Of the tz database; empty: the browser's."
    )

    class Meta:
        verbose_name_plural = "personal settings"

    def __str__(self) -> str:
        return f"settings of {self.user}"
