"""REST: the jobs that wait for each other, their critical path and when all of them have ended."""

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from insight_app.explain.job_graph import MOST_JOBS, JobGraph, read_job_graph
from jobs_app.models import Job
from jobs_app.permissions import jobs_seen_by


class GraphJob(serializers.Serializer[Any]):
    """A job, or the tasks of an array that are in the graph."""

    id = serializers.UUIDField(source="job.pk", help_text="Of the job; of an array, of one of its tasks.")
    name = serializers.CharField()
    array = serializers.UUIDField(source="job.array_id", allow_null=True)
    tasks = serializers.IntegerField(help_text="1, or the tasks of the array that are in the graph.")
    state = serializers.ChoiceField(Job.State.choices)
    after = serializers.SerializerMethodField(help_text="Ids of the jobs in the graph that it waits for.")
    starts_at = serializers.DateTimeField(allow_null=True, help_text="If it has not started, the median forecast.")
    ends_at = serializers.DateTimeField(allow_null=True, help_text="If it has not ended, the median forecast.")
    critical = serializers.BooleanField(source="is_critical", help_text="Whether it is on the critical path.")

    def get_after(self, node: Any) -> list[str]:
        graph: JobGraph = self.context["graph"]
        known = {one.key: str(one.job.pk) for one in graph.nodes}
        return [known[parent] for parent, child in graph.edges if child == node.key]


class GraphAnswer(serializers.Serializer[Any]):
    jobs = GraphJob(source="nodes", many=True, help_text="Parents come before their children.")
    ends_at = serializers.DateTimeField(allow_null=True, help_text="When all have ended, or are expected to have.")
    why_none = serializers.CharField(help_text="Why the end of all is not known; empty if it is.")
    complete = serializers.BooleanField(help_text=f"False: it is cut off at {MOST_JOBS} jobs.")


class GraphView(GenericAPIView[Job]):
    queryset = Job.objects.none()
    serializer_class = GraphAnswer

    @extend_schema(responses=GraphAnswer, summary="Jobs that wait for each other")
    def get(self, request: Request, pk: str) -> Response:
        """Jobs that the job waits for, those that wait for it, and all that they are connected with by `after`."""
        visible = jobs_seen_by(request)
        graph = read_job_graph(get_object_or_404(visible, pk=pk), visible)
        return Response(GraphAnswer(graph, context={"graph": graph}).data)
