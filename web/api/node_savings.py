"""REST: what one more node of each GPU type would save in waiting, and one less cost (`/lab/node-savings`)."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from insight_app.lab.node_savings import read_node_savings
from jobs_app.permissions import NotForJobs, caller


class SimulatedSavingAnswer(serializers.Serializer[Any]):
    """What the newest run of the lab in 28 days found that changed only this node, under the current setting."""

    lab_run = serializers.IntegerField()
    saved_h = serializers.FloatField(help_text="Hours of waiting a week; negative: that it cost.")
    only_teams_of = serializers.CharField(
        help_text="User whose teams' jobs alone were simulated; empty: all jobs were."
    )


class NodeSavingAnswer(serializers.Serializer[Any]):
    gpu_type = serializers.CharField()
    gpus = serializers.IntegerField(help_text="That there are.")
    node_gpus = serializers.IntegerField(help_text="Of a usual node.")
    price = serializers.FloatField(help_text="Hours that others waited per GPU-hour, the mean of the time.")
    saved_h = serializers.FloatField(help_text="Hours of waiting a week that one more node would have saved.")
    cost_h = serializers.FloatField(
        allow_null=True, help_text="Those that one node less would have cost; null: it is the only one."
    )
    simulated_more = SimulatedSavingAnswer(allow_null=True, help_text="Null: the lab has simulated no node more.")
    simulated_less = SimulatedSavingAnswer(allow_null=True, help_text="Null: the lab has simulated no node less.")
    words = serializers.CharField()


class NodeSavingsAnswer(serializers.Serializer[Any]):
    """Of each GPU type, by the prices of the rounds of the last seven days; those first that save most."""

    since = serializers.DateTimeField(allow_null=True, help_text="Begin of the time; null: nothing is known.")
    types = NodeSavingAnswer(many=True)
    why_none = serializers.CharField(help_text="Why `types` is empty.")


class NodeSavingsView(APIView):
    permission_classes = (NotForJobs,)

    @extend_schema(responses=NodeSavingsAnswer, summary="Get what nodes would save")
    def get(self, request: Request) -> Response:
        """Get what one more node of each GPU type would save in waiting, and one less cost.

        By the prices of past rounds, if those of the policy are hours of waiting, beside what the lab simulated.
        """
        return Response(NodeSavingsAnswer(read_node_savings(caller(request), timezone.now())).data)
