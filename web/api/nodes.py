"""REST: nodes; cordon, drain, resume, retire and restore."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import django_filters
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from cluster_app.models import Engine, Node
from cluster_app.retirement import restore_node, retire_node
from cluster_app.services import cordon, drain, resume
from insight_app.explain.drain_estimate import NodeOccupancy, occupancies
from insight_app.gpu_occupancy import nodes_with_gpus
from jobs_app.filters import GpuTypeFilter
from jobs_app.permissions import StaffChanges
from scheduler_app.round.node_lifetimes import KnownLifetime, known_lifetimes
from web.api.serializers import NodeAnswer
from web.rest.bodies import Nothing, Strict, Text, body_of
from web.rest.pagination import ByName
from web.rest.representation import ShowMany, ShowOne, single

NAME = r"[a-z0-9][a-z0-9._-]*"


class NodeFilter(django_filters.FilterSet):  # type: ignore[misc]
    state = django_filters.MultipleChoiceFilter(choices=Node.State.choices)
    health = django_filters.MultipleChoiceFilter(choices=Node.Health.choices)
    gpu_type = GpuTypeFilter(field_name="gpu_type__name")

    class Meta:
        model = Node
        fields: tuple[str, ...] = ()


class WhyOut(Strict):
    """Reason for taking a node out of service."""

    reason = Text(max_length=200, help_text="Shown to the owners of affected jobs.")


class WhyBack(Strict):
    """Note for the node's history."""

    reason = Text(max_length=200, required=False, default="", allow_blank=True)


@extend_schema_view(list=extend_schema(summary="List nodes"), retrieve=extend_schema(summary="Get a node"))
class NodeViewSet(ShowMany[Node], ShowOne[Node], viewsets.GenericViewSet[Node]):
    """Nodes, sorted by name."""

    serializer_class = NodeAnswer
    permission_classes = (StaffChanges,)
    pagination_class = ByName
    filterset_class = NodeFilter
    lookup_field = "name"
    lookup_value_regex = NAME

    @cached_property
    def occupancies(self) -> dict[str, NodeOccupancy]:
        """Occupancy of the nodes in the response, by name."""
        return {}

    @cached_property
    def lifetimes(self) -> dict[str, KnownLifetime]:
        """Observed lifetimes of the nodes in the response, by name."""
        return {}

    @cached_property
    def engines(self) -> dict[str, Engine]:
        """Each engine once, not with every node: its inventory names all of its nodes."""
        return Engine.objects.in_bulk(field_name="name")

    def get_queryset(self) -> QuerySet[Node]:
        """Without retired nodes in a list, unless states are asked for."""
        every = nodes_with_gpus()
        in_use = self.action == "list" and "state" not in self.request.query_params
        return every.exclude(state=Node.State.RETIRED) if in_use else every

    def paginate_queryset(self, queryset: Any) -> list[Any] | None:
        page = super().paginate_queryset(queryset)
        self._read_of(page or [])
        return page

    def get_object(self) -> Node:
        node = super().get_object()
        self._read_of([node])
        return node

    def _read_of(self, nodes: Sequence[Node]) -> None:
        now = timezone.now()
        self.occupancies.update(occupancies(nodes, now))
        self.lifetimes.update(known_lifetimes((node.name for node in nodes), now))

    def get_serializer_context(self) -> dict[str, Any]:
        read = {"occupancies": self.occupancies, "lifetimes": self.lifetimes, "engines": self.engines}
        return {**super().get_serializer_context(), **read}

    @extend_schema(request=WhyOut, responses={202: NodeAnswer})
    @action(detail=True, methods=["post"])
    def cordon(self, request: Request, name: str) -> Response:
        """Cordon a node. No new jobs are placed there; running jobs continue. Staff only."""
        return self._done(cordon, WhyOut)

    @extend_schema(request=WhyOut, responses={202: NodeAnswer})
    @action(detail=True, methods=["post"])
    def drain(self, request: Request, name: str) -> Response:
        """Drain a node. No new jobs are placed there; running jobs are stopped gracefully and requeued. Staff only."""
        return self._done(drain, WhyOut)

    @extend_schema(request=WhyBack, responses={202: NodeAnswer})
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, name: str) -> Response:
        """Resume a node. New jobs are placed there again. Staff only."""
        return self._done(resume, WhyBack)

    @extend_schema(request=WhyOut, responses={202: NodeAnswer})
    @action(detail=True, methods=["post"])
    def retire(self, request: Request, name: str) -> Response:
        """Retire a node. It is no part of the cluster any more, and stays in the history; 409 while jobs hold its GPUs.
        Staff only."""
        return self._done(retire_node, WhyOut)

    @extend_schema(request=Nothing, responses={202: NodeAnswer})
    @action(detail=True, methods=["post"])
    def restore(self, request: Request, name: str) -> Response:
        """Restore a retired node. It is in service again, with the GPUs that it had. Staff only."""
        return self._done(restore_node, Nothing)

    def _done(self, verb: Callable[..., None], why: type[Strict]) -> Response:
        node = self.get_object()
        verb(node, actor=self.request.user, **body_of(self.request, why))
        return single(self.request, self.get_serializer(self.get_object()).data, status.HTTP_202_ACCEPTED)
