"""Measured rates over REST."""

import django_filters
from django.db.models import QuerySet
from rest_framework import serializers, viewsets

from cluster_app.pagination import NewestFirst
from cluster_app.representation import ShowMany
from jobs_app.models import Throughput
from jobs_app.permissions import NotForJobs


class ThroughputFilter(django_filters.FilterSet):  # type: ignore[misc]
    team = django_filters.CharFilter(field_name="team__name")
    workload = django_filters.CharFilter(field_name="workload")
    gpu_type = django_filters.CharFilter(field_name="gpu_type__name")

    class Meta:
        model = Throughput
        fields: tuple[str, ...] = ()


class ThroughputAnswer(serializers.ModelSerializer[Throughput]):
    team = serializers.CharField(source="team.name")
    gpu_type = serializers.CharField(source="gpu_type.name")

    class Meta:
        model = Throughput
        fields = (
            "team",
            "workload",
            "gpu_type",
            "gpus",
            "nodes",
            "batch_size",
            "steps_per_second",
            "reports",
            "spread",
            "updated_at",
        )
        read_only_fields = fields


class ThroughputViewSet(ShowMany[Throughput], viewsets.GenericViewSet[Throughput]):
    """Steps/s that were measured, per workload and kind of gang: those of one's own teams; staff see all."""

    serializer_class = ThroughputAnswer
    permission_classes = (NotForJobs,)
    pagination_class = NewestFirst
    filterset_class = ThroughputFilter

    def get_queryset(self) -> QuerySet[Throughput]:
        rates = Throughput.objects.select_related("team", "gpu_type")
        user = self.request.user
        return rates if user.is_staff else rates.filter(team__members=user.pk)
