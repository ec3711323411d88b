"""REST: announcements of administrators that are in force."""

from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers, viewsets

from jobs_app.models import SiteAnnouncement
from jobs_app.permissions import NotForJobs
from web.rest.representation import ShowMany


class AnnouncementAnswer(serializers.ModelSerializer[SiteAnnouncement]):
    """An announcement to all who use the site; administrators write them in the administration."""

    class Meta:
        model = SiteAnnouncement
        fields = ("id", "text", "is_warning", "begins_at", "ends_at")
        read_only_fields = fields


@extend_schema_view(list=extend_schema(summary="List announcements in force"))
class AnnouncementViewSet(ShowMany[SiteAnnouncement], viewsets.GenericViewSet[SiteAnnouncement]):
    """Announcements that are shown now, the newest first."""

    queryset = SiteAnnouncement.objects.none()
    serializer_class = AnnouncementAnswer
    permission_classes = (NotForJobs,)

    def get_queryset(self) -> QuerySet[Any]:
        return SiteAnnouncement.objects.in_force(timezone.now())
