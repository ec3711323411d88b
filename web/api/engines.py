"""REST: engines."""

from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_field, extend_schema_view
from rest_framework import serializers, viewsets

from cluster_app.models import Engine
from jobs_app.permissions import NotForJobs, is_administrator
from web.api.nodes import NAME
from web.rest.pagination import ByName
from web.rest.representation import ShowMany, ShowOne


class EngineAnswer(serializers.ModelSerializer[Engine]):
    """An engine, and whether it answers: `fault` is empty if it does."""

    options = serializers.SerializerMethodField()

    class Meta:
        model = Engine
        fields = ("name", "kind", "enabled", "heard_at", "since", "fault", "options")
        read_only_fields = fields

    @extend_schema_field(
        serializers.DictField(allow_null=True, help_text="Null unless the caller is an administrator.")
    )
    def get_options(self, engine: Engine) -> dict[str, Any] | None:
        return engine.options if is_administrator(self.context["request"]) else None


@extend_schema_view(list=extend_schema(summary="List engines"), retrieve=extend_schema(summary="Get an engine"))
class EngineViewSet(ShowMany[Engine], ShowOne[Engine], viewsets.GenericViewSet[Engine]):
    """Engines, sorted by name."""

    queryset = Engine.objects.all()
    serializer_class = EngineAnswer
    permission_classes = (NotForJobs,)
    pagination_class = ByName
    lookup_field = "name"
    lookup_value_regex = NAME
