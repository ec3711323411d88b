"""Nodes over REST."""

from django.db.models import QuerySet
from rest_framework import viewsets

from cluster_app.models import Node
from cluster_app.pagination import ByName
from jobs_app.permissions import NotForJobs
from scheduler_app.looking import nodes_with_gpus
from scheduler_app.serializers import NodeAnswer


class NodeViewSet(viewsets.ReadOnlyModelViewSet[Node]):
    serializer_class = NodeAnswer
    permission_classes = (NotForJobs,)
    pagination_class = ByName
    lookup_field = "name"
    lookup_value_regex = r"[a-z0-9._-]+"

    def get_queryset(self) -> QuerySet[Node]:
        return nodes_with_gpus()
