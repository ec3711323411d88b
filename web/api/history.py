"""REST: jobs that ran, as a trace for the simulator."""

from datetime import UTC, datetime, timedelta
from typing import Any

from django.http import StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.views import APIView

from insight_app.lab.history import stream_history
from insight_app.lab.trace import as_they_are, numbered, stream_trace
from jobs_app.models import Job
from jobs_app.permissions import NotForJobs, caller
from simulation.traces.motley_csv import stream_motley_csv
from web.rest.query import Flag, query_of

CSV = "text/csv"
USUAL, MOST = timedelta(days=7), timedelta(days=366)
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
"""No job is older; a period before the first year cannot be computed."""


class HistoryQuery(serializers.Serializer[Any]):
    since = serializers.DateTimeField(required=False, help_text="First submission; default: seven days before `until`.")
    until = serializers.DateTimeField(required=False, help_text="End of the period; default: now.")
    anonymise = Flag(default=False, help_text="Numbers in place of the names of jobs, teams and workloads.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        until: datetime = attrs.get("until", timezone.now())
        since: datetime = attrs.get("since") or max(until, EARLIEST) - USUAL
        if since >= until:
            raise serializers.ValidationError({"until": "It is not after `since`."})
        if until - since > MOST:
            raise serializers.ValidationError({"since": f"Ask for {MOST.days} days at most."})
        return attrs | {"since": since, "until": until}


class HistoryView(APIView):
    """Jobs of the caller's teams, of all teams for staff, that were submitted in the period, ran and have ended."""

    permission_classes = (NotForJobs,)

    @extend_schema(parameters=[HistoryQuery], responses={(200, CSV): OpenApiTypes.STR}, summary="History as a trace")
    def get(self, request: Request) -> StreamingHttpResponse:
        """A trace in Motley's own format (`--format csv` of `motley simulate`).

        The work of a job is what it really did; its rates are measured, else declared, else estimated.
        """
        asked, now = query_of(request, HistoryQuery), timezone.now()
        jobs = Job.objects.visible_to(caller(request))
        parts = stream_history(jobs, asked["since"], asked["until"], now=now)
        lines = stream_motley_csv(stream_trace(parts, numbered if asked["anonymise"] else as_they_are))
        headers = {"Content-Disposition": 'attachment; filename="history.csv"'}
        return StreamingHttpResponse(lines, content_type=f"{CSV}; charset=utf-8", headers=headers)
