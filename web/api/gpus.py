"""REST: what was read of GPUs, of a job over its run and of a node now."""

from dataclasses import asdict
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounting_app.gpu_watch.history import (
    GpuNow,
    course_of_attempt,
    course_of_node,
    energy_j,
    gpus_now,
    latest_watched,
    summaries,
)
from cluster_app.models import Gpu, Node
from jobs_app.models import Attempt
from jobs_app.permissions import NotForJobs, jobs_seen_by

COURSE = timedelta(hours=24)
"""Of a node's GPUs."""
SLOWER = "Part by which jobs run slower on it than on others of its type; 0: it is not known to be slow."
NOT_SAID = "Null: the driver does not say."


class PointAnswer(serializers.Serializer[Any]):
    at = serializers.DateTimeField(help_text="Start of the interval.")
    utilization = serializers.FloatField(allow_null=True, help_text=f"Per cent, the mean. {NOT_SAID}")
    memory_used_mib = serializers.FloatField(allow_null=True)
    power_w = serializers.FloatField(allow_null=True)
    temperature_c = serializers.FloatField(allow_null=True, help_text="The highest.")


class NodePointAnswer(PointAnswer):
    name = serializers.CharField(help_text="The GPU, as `GPU 0`.")


class GpuSummaryAnswer(serializers.Serializer[Any]):
    node = serializers.CharField()
    index = serializers.IntegerField()
    utilization = serializers.FloatField(allow_null=True, help_text=f"Per cent, mean of the attempt. {NOT_SAID}")
    memory_used_max_mib = serializers.FloatField(allow_null=True)
    power_w = serializers.FloatField(allow_null=True, help_text="Mean of the attempt.")
    temperature_max_c = serializers.FloatField(allow_null=True)
    ecc_errors = serializers.IntegerField(allow_null=True, help_text="Uncorrectable, since the GPU was last reset.")
    slower_by = serializers.FloatField(help_text=SLOWER)


class JobGpusAnswer(serializers.Serializer[Any]):
    attempt = serializers.IntegerField(
        allow_null=True, help_text="Number of the latest attempt of which GPUs were read; null: there is none."
    )
    emulated = serializers.BooleanField(help_text="Whether a node of it is emulated: its figures are made up.")
    idle_gpus = serializers.IntegerField(help_text="GPUs below 5 % in each of the last ten minutes.")
    idle_since = serializers.DateTimeField(allow_null=True)
    energy_wh = serializers.FloatField(
        allow_null=True, help_text="Of the GPUs of all attempts of the job, as read; null: they were not."
    )
    gpus = GpuSummaryAnswer(many=True)
    course = PointAnswer(many=True, help_text="Means of its GPUs over the run, at most 200 points.")


class GpuNowAnswer(serializers.Serializer[Any]):
    index = serializers.IntegerField()
    uuid = serializers.CharField(help_text="Empty: the driver is not known.")
    healthy = serializers.BooleanField(help_text="If not, it gets no new job; the others of its node do.")
    fault = serializers.CharField(help_text="Why it gets no new job.")
    slower_by = serializers.FloatField(help_text=SLOWER)
    slower_by_jobs = serializers.IntegerField(help_text="Jobs that tell it.")
    slower_together = serializers.IntegerField(
        help_text="GPUs of the node of which the same jobs tell: which of them is slow is not known. 1: this one alone."
    )
    utilization = serializers.FloatField(allow_null=True, help_text=f"Per cent, mean of the last minute. {NOT_SAID}")
    memory_used_mib = serializers.FloatField(allow_null=True)
    power_w = serializers.FloatField(allow_null=True)
    temperature_c = serializers.FloatField(allow_null=True)
    ecc_errors = serializers.IntegerField(allow_null=True, help_text="Uncorrectable, since the GPU was last reset.")
    throttled_by = serializers.ListField(
        child=serializers.CharField(), help_text="Why it ran below its clock in the last minute."
    )


class NodeGpusAnswer(serializers.Serializer[Any]):
    emulated = serializers.BooleanField(help_text="Whether the node is emulated: its figures are made up.")
    gpus = GpuNowAnswer(many=True)
    course = NodePointAnswer(many=True, help_text="Each GPU over the last 24 hours, at most 200 points each.")


class JobGpusView(APIView):
    """GPUs of a job over the run of its latest attempt of which they were read, every few seconds."""

    @extend_schema(responses=JobGpusAnswer, summary="Utilization, memory, power and temperature of a job's GPUs")
    def get(self, request: Request, pk: UUID) -> Response:
        job, now = get_object_or_404(jobs_seen_by(request), pk=pk), timezone.now()
        attempts = list(job.attempts.all())
        watched, energy = latest_watched(attempts), energy_j(attempts)
        runs = watched if watched and watched.state == Attempt.State.RUNNING else None
        answer = {
            "attempt": watched.number if watched else None,
            "emulated": Node.objects.filter(name__in=watched.nodes if watched else [], emulated=True).exists(),
            "idle_gpus": runs.idle_gpus if runs else 0,
            "idle_since": runs.idle_since if runs else None,
            "energy_wh": None if energy is None else energy / 3600,
            "gpus": [asdict(one) for one in summaries(watched)] if watched else [],
            "course": [asdict(point) for point in course_of_attempt(watched, now)] if watched else [],
        }
        return Response(JobGpusAnswer(answer).data)


class NodeGpusView(APIView):
    """GPUs of a node: why one is out of service, what was read of each in the last minute, and their course."""

    permission_classes = (NotForJobs,)

    @extend_schema(responses=NodeGpusAnswer, summary="Health and load of a node's GPUs")
    def get(self, request: Request, name: str) -> Response:
        node, now = get_object_or_404(Node, name=name), timezone.now()
        read = {one.index: one for one in gpus_now(now, node.pk)}
        answer = {
            "emulated": node.emulated,
            "gpus": [_now(gpu, read.get(gpu.index)) for gpu in node.gpu_set.present().order_by("index")],
            "course": [asdict(point) for point in course_of_node(node.pk, now - COURSE, now)],
        }
        return Response(NodeGpusAnswer(answer).data)


def _now(gpu: Gpu, read: GpuNow | None) -> dict[str, Any]:
    figures = ("utilization", "memory_used_mib", "power_w", "temperature_c", "ecc_errors")
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "healthy": gpu.healthy,
        "fault": gpu.fault,
        "slower_by": gpu.slower_by,
        "slower_by_jobs": gpu.slower_by_jobs,
        "slower_together": gpu.slower_together,
        "throttled_by": read.throttled_by if read else [],
        **{name: getattr(read, name, None) for name in figures},
    }
