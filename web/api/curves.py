"""REST: the progress of a job over time, with its named metrics (`/jobs/{id}/curve`)."""

from collections.abc import Mapping
from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from jobs_app.measurement.progress_curves import MetricPoint, PointOfTime, last_metrics, read_curve
from jobs_app.models import Job
from jobs_app.permissions import jobs_seen_by


class MetricAnswer(serializers.Serializer[Any]):
    """Value of a named metric, and the step of its report."""

    step = serializers.IntegerField()
    value = serializers.FloatField()


class CurvePointAnswer(serializers.Serializer[Any]):
    """A point of a job's progress."""

    at = serializers.DateTimeField()
    step = serializers.IntegerField()
    loss = serializers.FloatField(allow_null=True)
    rate = serializers.FloatField(allow_null=True, help_text="Steps/s since the point before; null where it restarted.")
    metrics = serializers.DictField(
        child=MetricAnswer(), help_text="Named metrics that are new since the point before."
    )


class CurveAnswer(serializers.Serializer[Any]):
    """Progress of a job over all its attempts; of many reports every so many are kept, at most 500 points."""

    points = CurvePointAnswer(many=True)
    last = serializers.DictField(child=MetricAnswer(), help_text="Each named metric as it was reported last.")


class CurveView(GenericAPIView[Job]):
    queryset = Job.objects.none()
    serializer_class = CurveAnswer

    @extend_schema(responses=CurveAnswer, summary="Get the progress of a job over time")
    def get(self, request: Request, pk: str) -> Response:
        """The steps, losses, rates and named metrics that the job has reported, the oldest first."""
        points = read_curve(get_object_or_404(jobs_seen_by(request), pk=pk).pk)
        return Response({"points": [_shown(one) for one in points], "last": _metrics(last_metrics(points))})


def _shown(one: PointOfTime) -> dict[str, Any]:
    at = serializers.DateTimeField().to_representation(one.at)
    return {"at": at, "step": one.step, "loss": one.loss, "rate": one.rate, "metrics": _metrics(one.metrics)}


def _metrics(metrics: Mapping[str, MetricPoint]) -> dict[str, Any]:
    return {name: {"step": step, "value": value} for name, (step, value) in metrics.items()}
