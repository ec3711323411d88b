"""REST: receipt of a job, and on which other GPUs it would have been cheaper or sooner."""

from typing import Any

from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from insight_app.explain.cost_and_time import CostUnit
from insight_app.explain.gpu_advice import read_gpu_advice
from insight_app.explain.receipt import read_receipt
from jobs_app.measurement.energy import ENERGY_SOURCES
from jobs_app.models import Job
from jobs_app.permissions import jobs_seen_by

CO2 = "By MOTLEY_CO2_G_PER_KWH; null: not configured, or the energy is not known."


class ReceiptLineAnswer(serializers.Serializer[Any]):
    gpu_type = serializers.CharField()
    attempts = serializers.IntegerField()
    gpu_hours = serializers.FloatField()
    price_per_hour = serializers.FloatField(allow_null=True, help_text="Of one GPU, as it is now; null: it has none.")
    cost = serializers.FloatField(allow_null=True)


class OtherGpusAnswer(serializers.Serializer[Any]):
    gpu_type = serializers.CharField(source="on.gpu_type")
    gpus = serializers.IntegerField(source="on.gpus")
    nodes = serializers.IntegerField(source="on.nodes")
    rate = serializers.FloatField(source="on.rate", help_text="Steps/s, as measured.")
    runs = serializers.IntegerField(source="on.runs", help_text="Attempts behind the rate.")
    run_s = serializers.FloatField(help_text="Of the whole job.")
    cost = serializers.FloatField(help_text="Of the whole job, in `unit`.")
    later_s = serializers.FloatField(help_text="Than on its own GPUs; negative: sooner.")
    cheaper = serializers.FloatField(help_text="Part of the cost that would be saved; negative: dearer.")
    pareto_optimal = serializers.BooleanField(help_text="Whether no other is better in one without being worse.")
    words = serializers.CharField()


class AdviceAnswer(serializers.Serializer[Any]):
    """Which GPUs it should have requested, by measured rates of its workload and present prices."""

    sentence = serializers.CharField()
    own_run_s = serializers.FloatField(help_text="Of the whole job at its own measured rate; 0: nothing is compared.")
    own_cost = serializers.FloatField()
    unit = serializers.ChoiceField(CostUnit.choices)
    others = OtherGpusAnswer(many=True, help_text="The cheapest first.")


class ReceiptAnswer(serializers.Serializer[Any]):
    complete = serializers.BooleanField(help_text="False: the job has not ended, and this is what it took so far.")
    lines = ReceiptLineAnswer(many=True, help_text="By GPU type.")
    gpu_hours = serializers.FloatField()
    lost_gpu_hours = serializers.FloatField(help_text="Of these, work that was lost by stops and lost nodes.")
    cost = serializers.FloatField(allow_null=True, help_text="Null: none of the GPU types has a price.")
    unpriced = serializers.ListField(child=serializers.CharField(), help_text="GPU types that the cost leaves out.")
    currency = serializers.CharField(help_text="Empty: the site names none.")
    energy_kwh = serializers.FloatField(allow_null=True, help_text="Of its GPUs; null: not known.")
    energy_source = serializers.ChoiceField(ENERGY_SOURCES, source="energy.source")
    co2_g = serializers.FloatField(allow_null=True, help_text=CO2)


class ReceiptWithAdvice(ReceiptAnswer):
    """The receipt, and on which other GPUs the job would have been cheaper or sooner."""

    advice = AdviceAnswer()


class ReceiptView(GenericAPIView[Job]):
    queryset = Job.objects.none()
    serializer_class = ReceiptWithAdvice

    @extend_schema(responses=ReceiptWithAdvice, summary="Receipt of a job")
    def get(self, request: Request, pk: str) -> Response:
        """GPU-hours, cost, energy and CO2 of a job by GPU type, and the GPUs on which it would have been better off."""
        job = get_object_or_404(jobs_seen_by(request), pk=pk)
        attempts = list(job.attempts.select_related("gpu_type"))
        receipt = read_receipt(job, attempts, timezone.now())
        advice = AdviceAnswer(read_gpu_advice(job, attempts)).data
        return Response(ReceiptAnswer(receipt).data | {"advice": advice})
