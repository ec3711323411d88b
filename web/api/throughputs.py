"""REST: measured throughputs."""

import django_filters
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers, viewsets

from jobs_app.filters import GpuTypeFilter
from jobs_app.models import Throughput
from jobs_app.permissions import NotForJobs
from web.rest.pagination import NewestFirst
from web.rest.representation import ShowMany


class ThroughputFilter(django_filters.FilterSet):  # type: ignore[misc]
    team = django_filters.CharFilter(field_name="team__name")
    workload = django_filters.CharFilter(field_name="workload")
    gpu_type = GpuTypeFilter(field_name="gpu_type__name")

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
            "runs",
            "updated_at",
        )
        read_only_fields = fields


@extend_schema_view(list=extend_schema(summary="List measured throughputs"))
class ThroughputViewSet(ShowMany[Throughput], viewsets.GenericViewSet[Throughput]):
    """Measured steps/s by workload and gang, of the caller's teams; of all teams for staff."""

    serializer_class = ThroughputAnswer
    permission_classes = (NotForJobs,)
    pagination_class = NewestFirst
    filterset_class = ThroughputFilter

    def get_queryset(self) -> QuerySet[Throughput]:
        rates = Throughput.objects.select_related("team", "gpu_type")
        user = self.request.user
        return rates if user.is_staff else rates.filter(team__members=user.pk)
