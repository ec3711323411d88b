"""REST: progress of arrays, with what their tasks tell of those that have not run."""

from typing import Any
from uuid import UUID

from django.http import Http404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from estimation.durations import Basis
from insight_app.explain.array_progress import ArrayProgress, array_progress, array_summary
from jobs_app.permissions import NotForJobs, jobs_seen_by


class TaskEstimate(serializers.Serializer[Any]):
    """Duration of one task on its fewest GPUs of average speed, from those of the array that have succeeded."""

    seconds = serializers.FloatField(help_text="Mean.")
    least_seconds = serializers.FloatField(help_text="One of ten tasks takes less, if the estimate is right.")
    most_seconds = serializers.FloatField(help_text="One of ten tasks takes more.")
    basis = serializers.ChoiceField([(basis.value, basis.value) for basis in Basis])
    tasks = serializers.IntegerField(help_text="Tasks behind it.")


class ArrayAnswer(serializers.Serializer[Any]):
    """Tasks of an array by state, and what is left of it."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    tasks = serializers.IntegerField()
    waiting = serializers.IntegerField()
    running = serializers.IntegerField(help_text="Those that start or stop included.")
    succeeded = serializers.IntegerField()
    failed = serializers.IntegerField(help_text="Cancelled and timed out ones included.")
    estimate = TaskEstimate(allow_null=True, help_text="Null before a task has succeeded.")
    gpu_seconds_left = serializers.FloatField(allow_null=True)
    summary = serializers.CharField(help_text="The same in words.")


class ArrayView(APIView):
    """An array of which the caller may see the jobs; a job sees but itself of its array."""

    permission_classes = (NotForJobs,)

    @extend_schema(responses=ArrayAnswer, summary="Get an array")
    def get(self, request: Request, pk: UUID) -> Response:
        """Get the progress of an array: its tasks by state, how long one takes, and the GPU time that is left."""
        found = array_progress(pk, jobs_seen_by(request), timezone.now())
        if found is None:
            raise Http404
        return Response(ArrayAnswer(_answer(found)).data)


def _answer(found: ArrayProgress) -> dict[str, Any]:
    counts = {
        name: getattr(found, name) for name in ("id", "name", "tasks", "waiting", "running", "succeeded", "failed")
    }
    estimate = found.each and {
        "seconds": found.each.mean,
        "least_seconds": found.least_s,
        "most_seconds": found.most_s,
        "basis": Basis.SAMPLED,
        "tasks": found.each.n,
    }
    return counts | {"estimate": estimate, "gpu_seconds_left": found.left_gpu_s, "summary": array_summary(found)}
