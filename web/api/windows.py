"""REST: windows of nodes (`/windows`): maintenance, and reservations of teams. Administrators add and delete them."""

from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field, extend_schema_view
from rest_framework import serializers, status, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from cluster_app.models import GpuType, Node, zone_is_known
from jobs_app.models import Team
from jobs_app.permissions import StaffChanges, caller
from scheduler_app.models import TimeWindow
from scheduler_app.windows.editing import add_window, delete_window, window_faults
from scheduler_app.windows.reading import recurrence_of
from web.rest.bodies import DictOf, ListOf, ObjectByName, Strict, Text, body_of
from web.rest.pagination import OldestFirst
from web.rest.representation import ShowMany, ShowOne, single

MOST_NODES = 10_000


class ByNameInAnyCase(ObjectByName):
    """An object whose name is in lower case."""

    def to_internal_value(self, data: Any) -> Any:
        return super().to_internal_value(data.lower() if isinstance(data, str) else data)


def _by_name(model: Any, field: type[ObjectByName] = ObjectByName) -> Any:
    text = f"There is no {model._meta.verbose_name} with the name {{value}}."
    messages: dict[str, Any] = {"does_not_exist": text, "invalid": "Write a name."}
    return field(slug_field="name", queryset=model.objects.all(), required=False, error_messages=messages)


class NodesByName(ListOf):
    """Names of nodes, looked up in one query."""

    child = serializers.CharField(max_length=100)

    def to_internal_value(self, data: Any) -> list[Node]:
        names = list(dict.fromkeys(super().to_internal_value(data)))
        found = {node.name: node for node in Node.objects.filter(name__in=names)}
        if unknown := [name for name in names if name not in found]:
            raise serializers.ValidationError(f"There is no node with the name {', '.join(unknown[:5])}.")
        return [found[name] for name in names]


class WindowSpec(Strict):
    """A window to add: a maintenance has `nodes` or `labels`; a reservation `team`, `gpu_type` and `gpus`."""

    reason = Text(max_length=200, help_text="Shown to the owners of the jobs that wait or are stopped.")
    nodes = NodesByName(required=False, max_length=MOST_NODES)
    labels = DictOf(child=Text(max_length=200), required=False, help_text="Also the nodes that have all of these.")
    team = _by_name(Team)
    gpu_type = _by_name(GpuType, ByNameInAnyCase)
    gpus = serializers.IntegerField(
        required=False, min_value=1, max_value=2**31 - 1, help_text="In whole nodes: the fewest that have so many."
    )
    begins_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField()
    cron = Text(
        required=False,
        max_length=100,
        help_text="When it begins again, for as long: minute, hour, day, month, weekday, as `0 2 * * 0`.",
    )
    zone = Text(required=False, max_length=50, validators=[zone_is_known], help_text="Of `cron`. Default: UTC.")
    repeats_until = serializers.DateTimeField(required=False, help_text="It does not begin again from then on.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        faults: dict[str, list[str]] = {}
        for field, text in window_faults(attrs, timezone.now()):
            faults.setdefault(field, []).append(text)
        if faults:
            raise serializers.ValidationError(faults)
        return attrs


class OccurrenceAnswer(serializers.Serializer[Any]):
    begins_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField()


class WindowAnswer(serializers.ModelSerializer[TimeWindow]):
    """A window of nodes; `next` is the occurrence that goes on or comes next, null when it is over."""

    nodes: Any = serializers.SlugRelatedField(slug_field="name", many=True, read_only=True)
    labels = serializers.DictField(child=serializers.CharField(), read_only=True)
    team = serializers.CharField(source="team.name", default=None, allow_null=True, read_only=True)
    gpu_type = serializers.CharField(source="gpu_type.name", default=None, allow_null=True, read_only=True)
    next = serializers.SerializerMethodField()

    class Meta:
        model = TimeWindow
        fields: tuple[str, ...] = (
            *("id", "kind", "reason", "nodes", "labels", "team", "gpu_type", "gpus"),
            *("begins_at", "ends_at", "cron", "zone", "repeats_until", "next"),
        )
        read_only_fields: tuple[str, ...] = fields

    @extend_schema_field(OccurrenceAnswer(allow_null=True))
    def get_next(self, window: TimeWindow) -> dict[str, Any] | None:
        found = next(recurrence_of(window).occurrences(timezone.now()), None)
        return OccurrenceAnswer(found).data if found else None


@extend_schema_view(list=extend_schema(summary="List windows"), retrieve=extend_schema(summary="Get a window"))
class WindowViewSet(ShowMany[TimeWindow], ShowOne[TimeWindow], viewsets.GenericViewSet[TimeWindow]):
    """Windows of nodes that go on or are to come, in the order in which they were added."""

    queryset = TimeWindow.objects.none()
    serializer_class = WindowAnswer
    permission_classes = (StaffChanges,)
    pagination_class = OldestFirst
    lookup_value_regex = r"\d{1,18}"

    def get_queryset(self) -> QuerySet[TimeWindow]:
        windows = TimeWindow.objects.select_related("team", "gpu_type").prefetch_related("nodes")
        return windows.to_come(timezone.now()) if self.action == "list" else windows

    @extend_schema(request=WindowSpec, responses={201: WindowAnswer})
    def create(self, request: Request) -> Response:
        """Add a window. No job is placed that would cross it; those that run there are stopped in time. Staff only."""
        window = add_window(body_of(request, WindowSpec), actor=caller(request))
        return single(request, self.get_serializer(window).data, status.HTTP_201_CREATED)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete a window. Nodes that are drained for it return to service. Staff only."""
        delete_window(self.get_object(), actor=caller(request))
        return Response(status=status.HTTP_204_NO_CONTENT)
