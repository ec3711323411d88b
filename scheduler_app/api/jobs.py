"""Over REST: what joins a job with the rounds that decide on it."""

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from jobs_app.api import jobs_seen_by
from jobs_app.models import Job
from scheduler_app.looking import explain_job
from scheduler_app.serializers import Explanation


class ExplainView(GenericAPIView[Job]):
    queryset = Job.objects.none()
    serializer_class = Explanation

    @extend_schema(responses=Explanation)
    def get(self, request: Request, pk: str) -> Response:
        """Why the job waits, with numbers, and the rates that the scheduler counts on."""
        job = get_object_or_404(jobs_seen_by(request), pk=pk)
        return Response(Explanation(explain_job(job)).data)
