"""REST: what ran on the GPUs, what is expected to, outages of nodes, and windows."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from cluster_app.models import GpuType, Node
from insight_app.timeline.outages import WHATS
from insight_app.timeline.prices import TypePrice, read_prices
from insight_app.timeline.reading import (
    ExpectedRun,
    JobName,
    NodeWindow,
    Run,
    Timeline,
    Viewer,
    nodes_of_runs,
    read_timeline,
)
from insight_app.timeline.time_range import DEFAULT, WINDOWS, Frame
from jobs_app.models import Attempt
from jobs_app.permissions import NotForJobs, caller
from scheduler_app.models import TimeWindow
from web.api.serializers import IntervalAnswer
from web.rest.bodies import Text
from web.rest.choices import Choice
from web.rest.query import query_of

NOT_SEEN = "Null: a job of another team."


class TimelineQuery(serializers.Serializer[Any]):
    window = Choice(list(WINDOWS), default=DEFAULT, help_text="How much of the past.")
    gpu_type = Text(required=False, help_text="Only GPUs of this type.")

    def validate_gpu_type(self, name: str) -> str:
        name = name.lower()
        if not GpuType.objects.filter(name=name).exists():
            raise serializers.ValidationError(f"There is no GPU type {name}: GET /api/v1/gpu-types lists them.")
        return name


class TimelineJob(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    team = serializers.CharField()


class RunAnswer(serializers.Serializer[Any]):
    """One attempt of a job."""

    job = TimelineJob(allow_null=True, help_text=NOT_SEEN)
    attempt = serializers.IntegerField(allow_null=True, help_text=NOT_SEEN)
    gpu_type = serializers.CharField()
    gpus = serializers.IntegerField()
    nodes = serializers.ListField(child=serializers.CharField())
    since = serializers.DateTimeField(help_text="When its processes were launched.")
    until = serializers.DateTimeField(allow_null=True, help_text="Null: it goes on.")
    outcome = serializers.ChoiceField(
        Attempt.Outcome.choices, allow_blank=True, help_text="Empty: it goes on, or the job is of another team."
    )
    round = serializers.IntegerField(help_text="The round that placed it.")


class ExpectedAnswer(serializers.Serializer[Any]):
    """A job that runs or waits, with its forecast."""

    job = TimelineJob(allow_null=True, help_text=NOT_SEEN)
    gpu_type = serializers.CharField()
    gpus = serializers.IntegerField(help_text="Of a job that waits the fewest.")
    start = IntervalAnswer(allow_null=True, help_text="Null: it runs.")
    finish = IntervalAnswer()


class OutageAnswer(serializers.Serializer[Any]):
    node = serializers.CharField()
    what = serializers.ChoiceField(WHATS)
    reason = serializers.CharField()
    since = serializers.DateTimeField()
    until = serializers.DateTimeField(allow_null=True, help_text="Null: it goes on.")


class TimelineWindow(serializers.Serializer[Any]):
    """One occurrence of a window: over, going on or to come."""

    id = serializers.IntegerField(help_text="As in /api/v1/windows.")
    kind = serializers.ChoiceField(TimeWindow.Kind.choices)
    nodes = serializers.ListField(child=serializers.CharField())
    team = serializers.CharField(help_text="For which they are reserved; empty: a maintenance.")
    reason = serializers.CharField()
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()


class TypePriceAnswer(serializers.Serializer[Any]):
    """Price of a GPU type over some time; past ones are means of some rounds."""

    gpu_type = serializers.CharField()
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    price = serializers.FloatField(help_text="Hours that others wait per GPU-hour.")
    planned = serializers.BooleanField(help_text="Whether it lies ahead, in the plan of the newest forecast.")
    load = serializers.FloatField(allow_null=True, help_text="GPUs in use by the plan; null: it is past.")


class TimelineAnswer(serializers.Serializer[Any]):
    since = serializers.DateTimeField()
    now = serializers.DateTimeField()
    runs = RunAnswer(many=True, help_text="The newest first.")
    truncated = serializers.BooleanField(help_text="Whether there were more runs in the window than are told.")
    expected = ExpectedAnswer(many=True, help_text="Jobs of other teams that wait are left out.")
    outages = OutageAnswer(many=True)
    windows = TimelineWindow(many=True, help_text="Maintenance of nodes and reservations of teams, by their begin.")
    prices = TypePriceAnswer(many=True, help_text="By GPU type and time; empty if the policy has none in hours.")


class TimelineView(APIView):
    """What the page *Timeline* is drawn from, not merged."""

    permission_classes = (NotForJobs,)

    @extend_schema(
        parameters=[TimelineQuery], responses=TimelineAnswer, summary="Runs, forecasts, outages and windows over time"
    )
    def get(self, request: Request) -> Response:
        asked = query_of(request, TimelineQuery)
        gpu_type, frame = asked.get("gpu_type", ""), Frame.of(WINDOWS[asked["window"]], timezone.now())
        nodes = Node.objects.filter(gpu_type__name=gpu_type) if gpu_type else Node.objects.all()
        names = list(nodes.values_list("name", flat=True))
        timeline = read_timeline(frame, Viewer.of(caller(request)), names, gpu_type)
        return Response(_answer(timeline, read_prices(frame, gpu_type)))


# As the serializers above say, but not by them: of ten thousand runs they would take a second.


def _answer(timeline: Timeline, prices: Sequence[TypePrice]) -> dict[str, Any]:
    nodes = nodes_of_runs(timeline.runs)
    return {
        "since": timeline.frame.since,
        "now": timeline.frame.now,
        "runs": [_run(run, nodes.get(run.pk, [])) for run in timeline.runs],
        "truncated": timeline.truncated,
        "expected": [_expected(one) for one in timeline.expected],
        "outages": [outage._asdict() for outage in timeline.outages],
        "windows": [_window(window) for window in timeline.windows],
        "prices": [one._asdict() for one in prices],
    }


def _run(run: Run, nodes: list[str]) -> dict[str, Any]:
    return {
        "job": _job(run.job) if run.seen else None,
        "attempt": run.number,
        "gpu_type": run.gpu_type,
        "gpus": run.gpus,
        "nodes": nodes,
        "since": run.began_at,
        "until": run.ended_at,
        "outcome": run.outcome,
        "round": run.round_number,
    }


def _expected(one: ExpectedRun) -> dict[str, Any]:
    job = _job(one.job) if one.seen else None
    about = {"job": job, "gpu_type": one.gpu_type, "gpus": one.gpus}
    start, finish = one.forecast.start, one.forecast.finish
    return {**about, "start": asdict(start) if start else None, "finish": asdict(finish)}


def _window(window: NodeWindow) -> dict[str, Any]:
    about = {"id": window.window, "kind": window.kind, "nodes": list(window.nodes), "team": window.team}
    return about | {"reason": window.reason, "since": window.since, "until": window.until}


def _job(job: JobName) -> dict[str, Any]:
    return {"id": job.pk, "name": str(job), "team": job.team}
