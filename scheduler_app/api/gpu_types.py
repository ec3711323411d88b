"""REST: GPU types."""

from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers, viewsets

from cluster_app.models import GpuType, Node
from jobs_app.permissions import NotForJobs
from rest.pagination import ByName
from rest.representation import ShowMany, ShowOne
from scheduler_app.api.nodes import NAME
from scheduler_app.models import GpuClaim


class GpuTypeAnswer(serializers.ModelSerializer[GpuType]):
    """A GPU type; its figures are per GPU."""

    gpus = serializers.IntegerField(help_text="Number of GPUs of this type.")
    free_gpus = serializers.IntegerField(help_text="Free GPUs: healthy, on a node in service, not claimed.")
    price_per_hour = serializers.FloatField()

    class Meta:
        model = GpuType
        fields = (
            "name",
            "memory_mib",
            "tflops",
            "bandwidth_gbs",
            "power_w",
            "price_per_hour",
            "gpus",
            "free_gpus",
        )
        read_only_fields = fields


@extend_schema_view(list=extend_schema(summary="List GPU types"), retrieve=extend_schema(summary="Get a GPU type"))
class GpuTypeViewSet(ShowMany[GpuType], ShowOne[GpuType], viewsets.GenericViewSet[GpuType]):
    """GPU types, sorted by name."""

    serializer_class = GpuTypeAnswer
    permission_classes = (NotForJobs,)
    pagination_class = ByName
    lookup_field = "name"
    lookup_value_regex = NAME

    def get_queryset(self) -> QuerySet[GpuType]:
        present = Q(node__gpu__present=True)
        in_service = Q(node__state=Node.State.READY, node__health=Node.Health.HEALTHY, node__gpu__healthy=True)
        taken = Q(Exists(GpuClaim.objects.open().filter(gpu=OuterRef("node__gpu"))))
        return GpuType.objects.annotate(
            gpus=Count("node__gpu", filter=present),
            free_gpus=Count("node__gpu", filter=present & in_service & ~taken),
        )
