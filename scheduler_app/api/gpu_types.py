"""REST: GPU types."""

from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce, Greatest
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers, viewsets

from cluster_app.models import GpuType, Node, in_service
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
            "retired_at",
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
        usable = in_service("node__") & Q(node__gpu__healthy=True)
        taken = Q(Exists(GpuClaim.objects.open().filter(gpu=OuterRef("node__gpu"))))
        nodes = Node.objects.schedulable().filter(gpu_type=OuterRef("pk")).order_by().values("gpu_type")
        foreign = Coalesce(Subquery(nodes.annotate(used=Sum("foreign_gpus")).values("used")), 0)
        types = GpuType.objects.current() if self.action == "list" else GpuType.objects.all()
        return types.annotate(
            gpus=Count("node__gpu", filter=present),
            free_gpus=Greatest(Count("node__gpu", filter=present & usable & ~taken) - foreign, 0),
        )
