"""Announcements of administrators to all who use the site."""

from datetime import datetime

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.utils import timezone


class SiteAnnouncementQuerySet(models.QuerySet["SiteAnnouncement"]):
    def in_force(self, now: datetime) -> "SiteAnnouncementQuerySet":
        """Those that are shown now, the newest first."""
        return self.filter(Q(ends_at=None) | Q(ends_at__gt=now), begins_at__lte=now)


class SiteAnnouncement(models.Model):
    """A message at the top of each page, from its begin until its end, if it has one."""

    text = models.CharField(max_length=500)
    is_warning = models.BooleanField(
        default=False, verbose_name="warning", help_text="Shown in the colour of warnings."
    )
    before_login = models.BooleanField(
        default=False, verbose_name="also on the login page", help_text="Then it is shown to people without an account."
    )
    begins_at = models.DateTimeField(default=timezone.now, verbose_name="from")
    ends_at = models.DateTimeField(null=True, blank=True, verbose_name="until", help_text="Empty: until it is deleted.")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, editable=False, on_delete=models.SET_NULL, related_name="+"
    )

    objects = SiteAnnouncementQuerySet.as_manager()

    class Meta:
        ordering = ("-begins_at", "-id")
        verbose_name = "announcement"
        constraints = [
            models.CheckConstraint(
                condition=Q(ends_at=None) | Q(ends_at__gt=F("begins_at")),
                name="announcement_ends_after_its_begin",
                violation_error_message="It must end after it begins.",
            )
        ]

    def __str__(self) -> str:
        return self.text[:60]
