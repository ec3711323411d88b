"""REST: the monthly report of teams."""

from datetime import date, datetime
from typing import Any

from django.conf import settings
from django.http import StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounting_app.fairness.csv_reports import report_rows
from accounting_app.fairness.monthly_report import known_since, read_reports
from accounting_app.fairness.team_months import month_name, month_of
from jobs_app.measurement.energy import ENERGY_SOURCES
from jobs_app.permissions import NotForJobs, caller
from web.rest.bodies import Text
from web.rest.downloads import CSV, csv_answer
from web.rest.query import query_of


class ReportQuery(serializers.Serializer[Any]):
    month = Text(required=False, help_text="Month of UTC as 2026-11; default: this month.")
    team = Text(required=False, help_text="Only this team.")

    def validate_month(self, text: str) -> date:
        try:
            month = datetime.strptime(text, "%Y-%m").date()  # noqa: DTZ007  # a month has no zone
        except ValueError:
            raise serializers.ValidationError("Write a month as 2026-11.") from None
        if month > timezone.now().date():
            raise serializers.ValidationError("This month has not begun.")
        return month


class ReportedType(serializers.Serializer[Any]):
    gpu_type = serializers.CharField()
    gpu_hours = serializers.FloatField()
    work_gpu_hours = serializers.FloatField()
    cost = serializers.FloatField(help_text="0 for a GPU type without a price.")


class ReportedMember(serializers.Serializer[Any]):
    username = serializers.CharField()
    gpu_hours = serializers.FloatField()
    work_gpu_hours = serializers.FloatField()
    part = serializers.FloatField(help_text="Of the team's work.")


class ReportedJobs(serializers.Serializer[Any]):
    """Jobs that ended in the month, and the attempts that ended in it."""

    succeeded = serializers.IntegerField()
    failed = serializers.IntegerField()
    cancelled = serializers.IntegerField()
    timed_out = serializers.IntegerField()
    started = serializers.IntegerField(help_text="Those of these jobs that had started.")
    wait_s = serializers.FloatField(
        allow_null=True, help_text="Their mean time from submission, or a later begin time, to the first start."
    )
    wait_p95_s = serializers.FloatField(allow_null=True, help_text="Time within which 95 of 100 of them started.")
    restarts = serializers.IntegerField(help_text="Attempts after the first of their job.")


class TeamReportAnswer(serializers.Serializer[Any]):
    team = serializers.CharField()
    gpu_hours = serializers.FloatField()
    work_gpu_hours = serializers.FloatField(help_text="Reference GPU-hours: an hour on the average GPU counts as 1.")
    types = ReportedType(many=True)
    cost = serializers.FloatField(
        allow_null=True, help_text="At the prices that GPU types have now; null: none of them has one."
    )
    energy_kwh = serializers.FloatField(allow_null=True, help_text="Of the GPUs; null: not known.")
    energy_source = serializers.ChoiceField(ENERGY_SOURCES, source="energy.source")
    co2_g = serializers.FloatField(
        allow_null=True, help_text="By MOTLEY_CO2_G_PER_KWH; null: not configured, or the energy is not known."
    )
    jobs = ReportedJobs(
        source="figures", allow_null=True, help_text="Null: no longer known, as are lost and failed hours and members."
    )
    lost_gpu_hours = serializers.FloatField(
        allow_null=True, help_text="Work that was lost when attempts were stopped or lost with their node."
    )
    failed_gpu_hours = serializers.FloatField(allow_null=True, help_text="Of attempts that failed.")
    idle_gpu_hours = serializers.FloatField(
        allow_null=True, help_text="Held below 5 % utilization; null: no GPU was watched."
    )
    members = ReportedMember(many=True)


class ReportAnswer(serializers.Serializer[Any]):
    month = serializers.CharField(help_text="As 2026-11.")
    known_since = serializers.CharField(help_text="The first month of which there is a report.")
    currency = serializers.CharField(help_text="Of costs; empty: the site names none.")
    teams = TeamReportAnswer(many=True)


class ReportCsvView(APIView):
    """The same for spreadsheets: a line for each team, each of its GPU types, and each of its members."""

    permission_classes = (NotForJobs,)

    @extend_schema(
        parameters=[ReportQuery], responses={(200, CSV): OpenApiTypes.STR}, summary="Monthly report of teams, as CSV"
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        asked, now = query_of(request, ReportQuery), timezone.now()
        month: date = asked.get("month", month_of(now.date()))
        found = read_reports(month, caller(request), now, team=asked.get("team", ""))
        return csv_answer(report_rows(found), name=f"report-{month_name(month)}.csv")


class ReportView(APIView):
    """What each of the caller's teams had in a month; of all teams for staff."""

    permission_classes = (NotForJobs,)

    @extend_schema(parameters=[ReportQuery], responses=ReportAnswer, summary="Monthly report of teams")
    def get(self, request: Request) -> Response:
        asked, now = query_of(request, ReportQuery), timezone.now()
        month: date = asked.get("month", month_of(now.date()))
        answer = {
            "month": month_name(month),
            "known_since": month_name(known_since(now)),
            "currency": settings.MOTLEY_CURRENCY,
            "teams": read_reports(month, caller(request), now, team=asked.get("team", "")),
        }
        return Response(ReportAnswer(answer).data)
