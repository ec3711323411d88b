"""REST: usage of teams over days or months, for accounts."""

from datetime import timedelta
from typing import Any

from django.http import StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounting_app.fairness.csv_reports import usage_rows
from accounting_app.fairness.usage_report import Period, usage_between
from jobs_app.measurement.energy import ENERGY_SOURCES
from jobs_app.permissions import NotForJobs, caller
from web.rest.bodies import Text
from web.rest.choices import Choice
from web.rest.downloads import CSV, csv_answer
from web.rest.query import query_of

MOST_DAYS = 93
"""Of a report by day; one by month may be of any length."""


class UsageQuery(serializers.Serializer[Any]):
    since = serializers.DateField(required=False, help_text="First day (UTC); default: the first of this month.")
    until = serializers.DateField(required=False, help_text="Last day (UTC); default: today.")
    by = Choice([period.value for period in Period], default=Period.MONTH.value)
    team = Text(required=False, help_text="Only this team.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        today = timezone.now().date()
        asked = {"since": attrs.get("since", today.replace(day=1)), "until": attrs.get("until", today)}
        if asked["since"] > asked["until"]:
            raise serializers.ValidationError({"until": "The last day is before the first one, `since`."})
        if attrs["by"] == Period.DAY and asked["until"] - asked["since"] > timedelta(days=MOST_DAYS):
            text = f"A report by day may cover {MOST_DAYS} days: ask for less, or `by=month`."
            raise serializers.ValidationError({"since": text})
        return attrs | asked


class UsageRow(serializers.Serializer[Any]):
    period = serializers.DateField(help_text="The day, or the first day of the month.")
    team = serializers.CharField()
    gpu_type = serializers.CharField()
    gpu_hours = serializers.FloatField()
    work_gpu_hours = serializers.FloatField(
        help_text="GPU-hours weighted by the speed of the GPUs for the jobs; the cluster's average GPU counts as 1."
    )
    cost = serializers.FloatField(help_text="At the price per hour that the GPU type has now.")
    energy_kwh = serializers.FloatField(allow_null=True, help_text="Of the GPUs; null: not known.")
    energy_source = serializers.ChoiceField(
        ENERGY_SOURCES,
        help_text="As read of the GPUs, or by the power that the GPU type has now.",
    )


class UsageAnswer(serializers.Serializer[Any]):
    since = serializers.DateField()
    until = serializers.DateField()
    by = serializers.ChoiceField([period.value for period in Period])
    rows = UsageRow(many=True)


class UsageCsvView(APIView):
    """The same for spreadsheets."""

    permission_classes = (NotForJobs,)

    @extend_schema(
        parameters=[UsageQuery],
        responses={(200, CSV): OpenApiTypes.STR},
        summary="GPU-hours, energy and cost per team and GPU type, as CSV",
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        asked = query_of(request, UsageQuery)
        by = Period(asked["by"])
        found = usage_between(asked["since"], asked["until"], caller(request), by=by, team=asked.get("team", ""))
        return csv_answer(usage_rows(found, by), name=f"usage-by-{by.value}.csv")


class UsageView(APIView):
    """Usage of the caller's teams; of all teams for staff. It stays when jobs are deleted or archived."""

    permission_classes = (NotForJobs,)

    @extend_schema(
        parameters=[UsageQuery], responses=UsageAnswer, summary="GPU-hours, energy and cost per team and GPU type"
    )
    def get(self, request: Request) -> Response:
        asked = query_of(request, UsageQuery)
        first, last, by = asked["since"], asked["until"], Period(asked["by"])
        found = usage_between(first, last, caller(request), by=by, team=asked.get("team", ""))
        answer = {"since": first, "until": last, "by": by.value, "rows": found}
        return Response(UsageAnswer(answer).data)
