"""REST: nodes in use per GPU type, their forecast, and which nodes could sleep."""

from dataclasses import asdict
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounting_app.energy.report import energy_by_type
from accounting_app.models import SleepAdvice
from cluster_app.models import POWERED_DOWN
from jobs_app.permissions import NotForJobs


class ForecastAnswer(serializers.Serializer[Any]):
    hours = serializers.FloatField(help_text="From now on.")
    nodes = serializers.FloatField(help_text="Mean number of nodes in use.")


class PoweredDownAnswer(serializers.Serializer[Any]):
    name = serializers.CharField()
    state = serializers.ChoiceField([state.value for state in POWERED_DOWN])
    since = serializers.DateTimeField()
    fault = serializers.CharField(
        help_text="Why the site's command failed the last time, for staff with its output; empty: it did not."
    )


class TypeEnergyAnswer(serializers.Serializer[Any]):
    gpu_type = serializers.CharField()
    nodes = serializers.IntegerField()
    used = serializers.IntegerField(help_text="Nodes with a job, or waited for by one.")
    forecast = ForecastAnswer(many=True)
    forecast_by = serializers.ChoiceField(
        SleepAdvice.Source.choices,
        allow_blank=True,
        help_text="Where the forecast comes from; empty: there is none yet.",
    )
    awake = serializers.IntegerField(help_text="Nodes that should be awake.")
    could_sleep = serializers.ListField(child=serializers.CharField(), help_text="Nodes, the longest idle first.")
    asleep = PoweredDownAnswer(many=True, help_text="Nodes that sleep, or are being woken.")
    saved_w = serializers.FloatField(help_text="Power that is saved while those sleep that do, and those that could.")
    decided_at = serializers.DateTimeField(allow_null=True)


class EnergyAnswer(serializers.Serializer[Any]):
    types = TypeEnergyAnswer(many=True)


class EnergyView(APIView):
    """What Helios' controller of sleeping nodes decided for each GPU type in the last ten minutes."""

    permission_classes = (NotForJobs,)

    @extend_schema(responses=EnergyAnswer, summary="Nodes that could sleep, and the power that saves")
    def get(self, request: Request) -> Response:
        user: Any = request.user
        types = [asdict(one) for one in energy_by_type(timezone.now(), for_staff=user.is_staff)]
        return Response(EnergyAnswer({"types": types}).data)
