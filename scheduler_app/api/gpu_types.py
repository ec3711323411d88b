"""GPU types over REST."""

from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from rest_framework import serializers, viewsets

from cluster_app.models import GpuType, Node
from cluster_app.pagination import ByName
from cluster_app.representation import ShowMany, ShowOne
from jobs_app.permissions import NotForJobs
from scheduler_app.api.nodes import NAME
from scheduler_app.models import GpuClaim


class GpuTypeAnswer(serializers.ModelSerializer[GpuType]):
    """A kind of GPU; its figures are of one GPU."""

    gpus = serializers.IntegerField(help_text="How many there are.")
    free_gpus = serializers.IntegerField(help_text="How many a job could get now.")
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


class GpuTypeViewSet(ShowMany[GpuType], ShowOne[GpuType], viewsets.GenericViewSet[GpuType]):
    """GPU types by name."""

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
