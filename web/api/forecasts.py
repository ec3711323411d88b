"""REST: when a job starts and ends, and how good such forecasts were."""

from dataclasses import asdict
from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from forecast.deadlines import Calibration
from insight_app.models import KeptForecast
from insight_app.start_forecasts.accuracy import ForecastAccuracy, TeamJudgement, judge_by_team, judge_job_forecasts
from insight_app.start_forecasts.deadlines import judge_deadlines
from insight_app.start_forecasts.showing import read_forecast, why_none
from jobs_app.models import Job
from jobs_app.permissions import NotForJobs, caller, jobs_seen_by
from web.api.serializers import IntervalAnswer


class QueueForecastAnswer(serializers.Serializer[Any]):
    """When a job starts and ends, from futures of the queue that were played."""

    made_at = serializers.DateTimeField(help_text="When the queue was read.")
    start = IntervalAnswer(allow_null=True, help_text="Null: it holds GPUs.")
    finish = IntervalAnswer()
    gpu_type = serializers.CharField(help_text="On which it most likely runs; empty: it starts in no future.")
    type_part = serializers.FloatField(help_text="Part of the futures that start it there, 0 to 1.")
    place = serializers.IntegerField(help_text="Among the jobs that wait, by median start; 0: it holds GPUs.")
    queue = serializers.IntegerField(help_text="Jobs that would start on free GPUs, and this one.")
    in_time = serializers.FloatField(
        allow_null=True,
        help_text="Probability of being done by its deadline; null: it has none, or one that is new, has passed, or "
        "lies more than three days ahead.",
    )


class JobForecastAnswer(serializers.Serializer[Any]):
    forecast = QueueForecastAnswer(allow_null=True)
    why_none = serializers.CharField(help_text="Why there is no forecast; empty if there is one.")


class ForecastView(GenericAPIView[Job]):
    queryset = Job.objects.none()
    serializer_class = JobForecastAnswer

    @extend_schema(responses=JobForecastAnswer, summary="When a job starts and ends")
    def get(self, request: Request, pk: str) -> Response:
        """Forecast of the job's start and end, as intervals; null with the reason where there is none."""
        job = get_object_or_404(jobs_seen_by(request), pk=pk)
        found = read_forecast(job)
        answer = {"forecast": asdict(found) if found else None, "why_none": "" if found else why_none(job)}
        return Response(JobForecastAnswer(answer).data)


class ScoreAnswer(serializers.Serializer[Any]):
    outcomes = serializers.IntegerField(help_text="Forecasts of events that have happened since.")
    too_few = serializers.BooleanField(help_text="Whether these are too few for the figures to say anything.")
    coverage = serializers.FloatField(help_text="Part of the events within the interval; 0.8 would be right.")
    pinball_s = serializers.FloatField(help_text="Mean pinball loss of the three quantiles, in seconds.")
    median_error_s = serializers.FloatField(help_text="Half of the events were no farther from the median.")


class ForecastJudgementAnswer(ScoreAnswer):
    """Forecasts of one event, horizon and kind of length, beside when the events came."""

    event = serializers.ChoiceField(KeptForecast.Event.choices)
    from_s = serializers.FloatField(help_text="Least time to the median of the forecast.")
    until_s = serializers.FloatField(allow_null=True, help_text="Most time to it; null: no limit.")
    known_length = serializers.BooleanField(help_text="Whether the jobs declared or reported their steps.")


class TeamForecastAnswer(ScoreAnswer):
    """Forecasts of one event of one team's jobs, beside when the events came."""

    team = serializers.CharField()
    event = serializers.ChoiceField(KeptForecast.Event.choices)


class ForecastAccuracyView(APIView):
    """How good forecasts of starts and ends were, over the newest 2,000 events of the jobs of all teams."""

    permission_classes = (NotForJobs,)

    @extend_schema(responses=ForecastJudgementAnswer(many=True), summary="Accuracy of forecasts of starts and ends")
    def get(self, request: Request) -> Response:
        return Response(ForecastJudgementAnswer([_flat(one) for one in judge_job_forecasts()], many=True).data)


class TeamForecastAccuracyView(APIView):
    """How good forecasts were for each team that the caller sees, over the newest 2,000 events of their jobs."""

    permission_classes = (NotForJobs,)

    @extend_schema(responses=TeamForecastAnswer(many=True), summary="Accuracy of forecasts by team")
    def get(self, request: Request) -> Response:
        return Response(TeamForecastAnswer([_flat(one) for one in judge_by_team(caller(request))], many=True).data)


class DeadlineBinAnswer(serializers.Serializer[Any]):
    """Forecasts whose probabilities lie between two limits, beside how many of the deadlines were met."""

    least = serializers.FloatField(help_text="Least probability.")
    most = serializers.FloatField(help_text="All were below this; of the last, at most this.")
    outcomes = serializers.IntegerField(help_text="Forecasts whose outcome is known.")
    too_few = serializers.BooleanField(help_text="Whether these are too few for the figures to say anything.")
    stated = serializers.FloatField(help_text="Mean of the probabilities.")
    met = serializers.FloatField(help_text="Part of the deadlines that were met.")


class DeadlineAccuracyAnswer(serializers.Serializer[Any]):
    """Probabilities of meeting deadlines, beside which were met."""

    outcomes = serializers.IntegerField(help_text="Forecasts whose outcome is known.")
    too_few = serializers.BooleanField(help_text="Whether these are too few for the figures to say anything.")
    met = serializers.FloatField(allow_null=True, help_text="Part of the deadlines that were met; null: no outcomes.")
    brier = serializers.FloatField(
        allow_null=True, help_text="Mean squared difference between probability and outcome; 0 is perfect."
    )
    brier_of_mean = serializers.FloatField(
        allow_null=True, help_text="The same, had the part that was met been told of every job."
    )
    bins = DeadlineBinAnswer(many=True, help_text="By probability; those with outcomes.")


class DeadlineAccuracyView(APIView):
    """How good probabilities of meeting deadlines were, over the newest 2,000 outcomes of the jobs of all teams."""

    permission_classes = (NotForJobs,)

    @extend_schema(responses=DeadlineAccuracyAnswer, summary="Accuracy of probabilities of meeting deadlines")
    def get(self, request: Request) -> Response:
        return Response(DeadlineAccuracyAnswer(_of_deadlines(judge_deadlines())).data)


def _of_deadlines(judged: Calibration | None) -> dict[str, Any]:
    if judged is None:
        return {"outcomes": 0, "too_few": True, "met": None, "brier": None, "brier_of_mean": None, "bins": []}
    return judged._asdict() | {"too_few": judged.too_few}


def _flat(one: ForecastAccuracy | TeamJudgement) -> dict[str, Any]:
    return one._asdict() | one.score._asdict() | {"too_few": one.score.too_few}
