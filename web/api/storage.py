"""REST: named storage."""

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_field, extend_schema_view
from rest_framework import serializers, viewsets

from cluster_app.models import Storage
from cluster_app.storage import nodes_without
from jobs_app.permissions import NotForJobs, is_administrator
from web.rest.pagination import ByNameAndEngine
from web.rest.representation import ShowMany


class StorageAnswer(serializers.ModelSerializer[Storage]):
    """A storage on the nodes of an engine, or of one GPU type there. Jobs name it under `mounts`."""

    engine = serializers.CharField(source="engine_id")
    gpu_type = serializers.CharField(
        source="gpu_type.name", default=None, allow_null=True, help_text="Null: all nodes of the engine."
    )
    # Jobs find the path in a variable. It is another one elsewhere, and tells how the site is built.
    path = serializers.SerializerMethodField(help_text="Null unless the caller is an administrator.")
    missing_on = serializers.SerializerMethodField(help_text="Nodes on which a job did not find it lately.")

    class Meta:
        model = Storage
        fields = ("name", "engine", "gpu_type", "path", "missing_on")
        read_only_fields = fields

    def get_path(self, storage: Storage) -> str | None:
        return storage.path if is_administrator(self.context["request"]) else None

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_missing_on(self, storage: Storage) -> list[str]:
        return nodes_without(storage)


@extend_schema_view(list=extend_schema(summary="List named storage"))
class StorageViewSet(ShowMany[Storage], viewsets.GenericViewSet[Storage]):
    """Named storage by engine and GPU type, sorted by name."""

    serializer_class = StorageAnswer
    permission_classes = (NotForJobs,)
    pagination_class = ByNameAndEngine

    def get_queryset(self) -> QuerySet[Storage]:
        return Storage.objects.select_related("gpu_type")
