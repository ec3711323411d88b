"""REST: GPU types; retire and restore."""

from collections.abc import Callable

from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce, Greatest
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from cluster_app.models import GpuType, Node, in_service
from cluster_app.retirement import restore_gpu_type, retire_gpu_type
from jobs_app.models import GpuClaim
from jobs_app.permissions import StaffChanges
from web.api.nodes import NAME
from web.rest.bodies import Nothing, body_of
from web.rest.pagination import ByName
from web.rest.representation import ShowMany, ShowOne, single


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
    permission_classes = (StaffChanges,)
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

    @extend_schema(request=Nothing, responses={202: GpuTypeAnswer})
    @action(detail=True, methods=["post"])
    def retire(self, request: Request, name: str) -> Response:
        """Retire a GPU type. It is no longer offered, and stays in the history; 409 while it has nodes. Staff only."""
        return self._done(retire_gpu_type)

    @extend_schema(request=Nothing, responses={202: GpuTypeAnswer})
    @action(detail=True, methods=["post"])
    def restore(self, request: Request, name: str) -> Response:
        """Restore a retired GPU type. It is offered again; its nodes are restored one by one. Staff only."""
        return self._done(restore_gpu_type)

    def _done(self, verb: Callable[..., None]) -> Response:
        body_of(self.request, Nothing)
        verb(self.get_object(), actor=self.request.user)
        return single(self.request, self.get_serializer(self.get_object()).data, status.HTTP_202_ACCEPTED)
