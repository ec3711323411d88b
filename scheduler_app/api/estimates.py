"""REST: how good estimates are."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from estimation.durations import Basis
from jobs_app.permissions import NotForJobs
from scheduler_app.forecasts.accuracy import Judgement, Moment, judge_forecasts


class JudgementAnswer(serializers.Serializer[Any]):
    """Forecasts of durations of one moment and basis, beside how long the jobs took."""

    moment = serializers.ChoiceField([(moment.value, moment.value) for moment in Moment])
    basis = serializers.ChoiceField([(basis.value, basis.value) for basis in Basis])
    jobs = serializers.IntegerField(help_text="Jobs that have succeeded since.")
    too_few = serializers.BooleanField(help_text="Whether these are too few for the figures to say anything.")
    mean_absolute_error = serializers.FloatField(help_text="Relative to the duration: 0.5 is 50 %.")
    factor = serializers.FloatField(help_text="Half of the forecasts are within this factor of the duration.")
    rank_correlation = serializers.FloatField(allow_null=True, help_text="Spearman's; null if all are equal.")
    within_limits = serializers.FloatField(
        allow_null=True, help_text="Part of the durations within the limits that were given; 0.8 would be right."
    )


class EstimatesAnswer(serializers.Serializer[Any]):
    durations = JudgementAnswer(many=True)


class EstimatesView(APIView):
    """How good forecasts of durations were, over the jobs of all teams that succeeded last."""

    permission_classes = (NotForJobs,)

    @extend_schema(responses=EstimatesAnswer, summary="Accuracy of estimates")
    def get(self, request: Request) -> Response:
        return Response(EstimatesAnswer({"durations": [_answer(one) for one in judge_forecasts()]}).data)


def _answer(one: Judgement) -> dict[str, Any]:
    found = one.accuracy
    return {
        "moment": one.moment,
        "basis": one.basis,
        "jobs": found.n,
        "too_few": found.is_chance,
        "mean_absolute_error": found.mape,
        "factor": found.factor,
        "rank_correlation": found.rank_correlation,
        "within_limits": one.within_limits,
    }
