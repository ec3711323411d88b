"""Nodes over REST: look, and take them out of service and back."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import django_filters
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from cluster_app.models import Node
from cluster_app.pagination import ByName
from cluster_app.representation import ShowMany, ShowOne, single
from cluster_app.services import cordon, drain, resume
from jobs_app.fields import Strict
from jobs_app.permissions import StaffChanges
from scheduler_app.api.bodies import Words, body_of
from scheduler_app.emptying import Occupancy, occupancies
from scheduler_app.looking import nodes_with_gpus
from scheduler_app.serializers import NodeAnswer

NAME = r"[a-z0-9][a-z0-9._-]*"


class NodeFilter(django_filters.FilterSet):  # type: ignore[misc]
    state = django_filters.MultipleChoiceFilter(choices=Node.State.choices)
    health = django_filters.MultipleChoiceFilter(choices=Node.Health.choices)
    gpu_type = django_filters.CharFilter(field_name="gpu_type__name")

    class Meta:
        model = Node
        fields: tuple[str, ...] = ()


class WhyOut(Strict):
    """Why a node is taken out of service."""

    reason = Words(max_length=200, help_text="Shown to everybody whose job is affected.")


class WhyBack(Strict):
    """What was done about it, for the history."""

    reason = Words(max_length=200, required=False, default="", allow_blank=True)


class NodeViewSet(ShowMany[Node], ShowOne[Node], viewsets.GenericViewSet[Node]):
    """Nodes by name."""

    serializer_class = NodeAnswer
    permission_classes = (StaffChanges,)
    pagination_class = ByName
    filterset_class = NodeFilter
    lookup_field = "name"
    lookup_value_regex = NAME

    @cached_property
    def occupancies(self) -> dict[str, Occupancy]:
        """Of the nodes that are shown."""
        return {}

    def get_queryset(self) -> QuerySet[Node]:
        return nodes_with_gpus()

    def paginate_queryset(self, queryset: Any) -> list[Any] | None:
        page = super().paginate_queryset(queryset)
        self.occupancies.update(occupancies(page or [], timezone.now()))
        return page

    def get_object(self) -> Node:
        node = super().get_object()
        self.occupancies.update(occupancies([node], timezone.now()))
        return node

    def get_serializer_context(self) -> dict[str, Any]:
        return {**super().get_serializer_context(), "occupancies": self.occupancies}

    @extend_schema(request=WhyOut, responses={202: NodeAnswer})
    @action(detail=True, methods=["post"])
    def cordon(self, request: Request, name: str) -> Response:
        """Place nothing new there; what runs goes on. For staff."""
        return self._done(cordon, WhyOut)

    @extend_schema(request=WhyOut, responses={202: NodeAnswer})
    @action(detail=True, methods=["post"])
    def drain(self, request: Request, name: str) -> Response:
        """Place nothing new there, and move what runs away, gracefully. For staff."""
        return self._done(drain, WhyOut)

    @extend_schema(request=WhyBack, responses={202: NodeAnswer})
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, name: str) -> Response:
        """Take new jobs again. For staff."""
        return self._done(resume, WhyBack)

    def _done(self, verb: Callable[..., None], why: type[Strict]) -> Response:
        node = self.get_object()
        verb(node, actor=self.request.user, **body_of(self.request, why))
        return single(self.request, self.get_serializer(self.get_object()).data, status.HTTP_202_ACCEPTED)
