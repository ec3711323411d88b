"""REST: how good estimates are."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounting_app.durations.accuracy import DurationAccuracy, Moment, judge_forecasts
from accounting_app.durations.boosted_model import FittedCard, read_card
from accounting_app.durations.rate_accuracy import judge_rates
from estimation.accuracy import Accuracy
from estimation.boosted_durations import Comparison
from estimation.durations import Basis
from jobs_app.models import Attempt
from jobs_app.permissions import NotForJobs


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


class RateJudgementAnswer(serializers.Serializer[Any]):
    """Rates from one source that rounds counted on, beside the rates that were measured."""

    source = serializers.ChoiceField(Attempt.RateSource.choices)  # type: ignore[assignment]  # a field's own
    attempts = serializers.IntegerField(help_text="Ended attempts on real GPUs with three progress reports or more.")
    too_few = serializers.BooleanField(help_text="Whether these are too few for the figures to say anything.")
    mean_absolute_error = serializers.FloatField(help_text="Relative to the measured rate: 0.5 is 50 %.")
    factor = serializers.FloatField(help_text="Half of the rates are within this factor of the measured one.")
    rank_correlation = serializers.FloatField(allow_null=True, help_text="Spearman's; null if all are equal.")


class FiguresAnswer(serializers.Serializer[Any]):
    mean_absolute_error = serializers.FloatField(help_text="Of the medians, relative to the duration: 0.5 is 50 %.")
    factor = serializers.FloatField(help_text="Half of the medians are within this factor of the duration.")
    rank_correlation = serializers.FloatField(allow_null=True, help_text="Spearman's; null if all are equal.")


class ComparisonAnswer(serializers.Serializer[Any]):
    """A model of durations beside the mean of similar jobs, on the same jobs, which it had not learned from."""

    basis = serializers.ChoiceField(
        [(basis.value, basis.value) for basis in Basis],
        allow_null=True,
        help_text="The mean that it is compared with; null: all of them together.",
    )
    jobs = serializers.IntegerField(help_text="Jobs held out.")
    model = FiguresAnswer()
    mean = FiguresAnswer()
    in_use = serializers.BooleanField(help_text="Whether the model is used in place of the mean.")


class ModelAnswer(serializers.Serializer[Any]):
    """The card of the model of durations."""

    fitted_at = serializers.DateTimeField()
    jobs = serializers.IntegerField(help_text="Ended jobs that it was fitted to.")
    comparisons = ComparisonAnswer(many=True)


class EstimatesAnswer(serializers.Serializer[Any]):
    durations = JudgementAnswer(many=True)
    duration_model = ModelAnswer(allow_null=True, help_text="Null: none is fitted yet.")
    rates = RateJudgementAnswer(many=True)


class EstimatesView(APIView):
    """How good forecasts of durations and of rates were, over the jobs of all teams that ended last."""

    permission_classes = (NotForJobs,)

    @extend_schema(responses=EstimatesAnswer, summary="Accuracy of estimates")
    def get(self, request: Request) -> Response:
        durations = [_of_durations(one) for one in judge_forecasts()]
        rates = [{"source": one.source, "attempts": one.accuracy.n} | _figures(one.accuracy) for one in judge_rates()]
        model = _of_model(found) if (found := read_card()) else None
        return Response(EstimatesAnswer({"durations": durations, "duration_model": model, "rates": rates}).data)


def _of_durations(one: DurationAccuracy) -> dict[str, Any]:
    about = {"moment": one.moment, "basis": one.basis, "jobs": one.accuracy.n, "within_limits": one.within_limits}
    return about | _figures(one.accuracy)


def _of_model(found: FittedCard) -> dict[str, Any]:
    comparisons = [_of_comparison(one) for one in found.card.comparisons]
    return {"fitted_at": found.fitted_at, "jobs": found.card.jobs, "comparisons": comparisons}


def _of_comparison(one: Comparison) -> dict[str, Any]:
    figures = {"model": _figures(one.boosted), "mean": _figures(one.rolling)}
    return {"basis": one.basis, "jobs": one.boosted.n, "in_use": one.basis is not None and one.is_better} | figures


def _figures(found: Accuracy) -> dict[str, Any]:
    return {
        "too_few": found.is_chance,
        "mean_absolute_error": found.mape,
        "factor": found.factor,
        "rank_correlation": found.rank_correlation,
    }
