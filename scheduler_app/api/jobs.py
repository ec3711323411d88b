"""Over REST: what joins a job with the rounds that decide on it."""

from typing import Any

from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from jobs_app.api import jobs_seen_by
from jobs_app.api.jobs import JobViewSet
from jobs_app.api.once import IDEMPOTENCY_KEY, person
from jobs_app.models import Job
from jobs_app.queueing import draft_spec
from jobs_app.serializers import JobInFull
from jobs_app.spec import JobSpec
from jobs_app.submission import admitted
from scheduler_app.looking import explain_job
from scheduler_app.outlook import outlook_of_admitted
from scheduler_app.remedies import what_would_start
from scheduler_app.serializers import Explanation, PlanAnswer


class SubmitQuery(serializers.Serializer[Any]):
    dry_run = serializers.BooleanField(
        required=False, help_text="Only say what the job would get: the same checks, and nothing is written."
    )


class ExplainQuery(serializers.Serializer[Any]):
    would_start = serializers.BooleanField(
        required=False, help_text="Also try what change would start it: some rounds are planned for that."
    )


class PlannedJobViewSet(JobViewSet):
    """Jobs, of which one may ask what they would get."""

    @extend_schema(
        request=JobSpec,
        responses={200: PlanAnswer, 201: JobInFull},
        parameters=[SubmitQuery, IDEMPOTENCY_KEY],
    )
    def create(self, request: Request) -> Response:
        """Submit a job; for an array the answer is its first member. With `dry_run` the answer is its plan (200)."""
        query = SubmitQuery(data=request.query_params)
        query.is_valid(raise_exception=True)
        return self._planned(request) if query.validated_data.get("dry_run") else super().create(request)

    def _planned(self, request: Request) -> Response:
        asked = admitted(request.data, person(request))
        return Response(PlanAnswer(outlook_of_admitted(asked) | {"spec": draft_spec(asked)}).data)


class ExplainView(GenericAPIView[Job]):
    queryset = Job.objects.none()
    serializer_class = Explanation

    @extend_schema(responses=Explanation, parameters=[ExplainQuery])
    def get(self, request: Request, pk: str) -> Response:
        """Why the job waits, with numbers, the rates that the scheduler counts on, and what would start it."""
        job, query = get_object_or_404(jobs_seen_by(request), pk=pk), ExplainQuery(data=request.query_params)
        query.is_valid(raise_exception=True)
        explanation = explain_job(job)
        if query.validated_data.get("would_start"):
            explanation["would_start"] = what_would_start(job, timezone.now())
        return Response(Explanation(explanation).data)
