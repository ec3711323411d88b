"""Nodes, rounds and reasons as JSON."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from cluster_app.models import Node
from jobs_app.serializers import ReasonAnswer
from scheduler_app import remedies
from scheduler_app.emptying import Occupancy
from scheduler_app.models import Round

WHEN_EMPTY = "An estimate, while it is out of service: when the last job will have left. Null: nobody can know."


class NodeAnswer(serializers.ModelSerializer[Node]):
    """A node with the GPUs in it, and what is on it; `gpus` and `busy_gpus` are set by the query."""

    gpu_type = serializers.CharField(source="gpu_type.name")
    gpus = serializers.IntegerField()
    free_gpus = serializers.SerializerMethodField()
    jobs_running = serializers.SerializerMethodField()
    empty = serializers.SerializerMethodField()
    empty_at = serializers.SerializerMethodField()

    class Meta:
        model = Node
        fields = (
            "name",
            "gpu_type",
            "gpus",
            "free_gpus",
            "state",
            "health",
            "reason",
            "emulated",
            "engine",
            "cpus",
            "memory_mib",
            "labels",
            "heard_at",
            "jobs_running",
            "empty",
            "empty_at",
        )
        read_only_fields = fields

    def get_free_gpus(self, node: Node) -> int:
        return int(node.gpus - node.busy_gpus)  # type: ignore[attr-defined]  # annotations of the query

    def get_jobs_running(self, node: Node) -> int:
        return self._occupancy(node).jobs_running

    def get_empty(self, node: Node) -> bool:
        """Nothing runs there, and of what ran there nothing is left."""
        return self._occupancy(node).empty

    @extend_schema_field(serializers.DateTimeField(allow_null=True, help_text=WHEN_EMPTY))
    def get_empty_at(self, node: Node) -> str | None:
        at = self._occupancy(node).empty_at
        return str(serializers.DateTimeField().to_representation(at)) if at else None

    def _occupancy(self, node: Node) -> Occupancy:
        occupancy: Occupancy = self.context["occupancies"][node.name]
        return occupancy


class RoundAnswer(serializers.ModelSerializer[Round]):
    solve_seconds = serializers.SerializerMethodField()

    class Meta:
        model = Round
        fields: tuple[str, ...] = (
            "number",
            "started_at",
            "ended_at",
            "result",
            "message",
            "policy",
            "parameters",
            "jobs",
            "gpus",
            "starts",
            "stops",
            "moves",
            "objective",
            "bound",
            "gap",
            "status",
            "solve_seconds",
            "seconds",
            "prices",
        )
        read_only_fields: tuple[str, ...] = fields

    def get_solve_seconds(self, record: Round) -> float | None:
        seconds: float | None = record.seconds.get("decide")
        return seconds


class RateUsed(serializers.Serializer[Any]):
    gpu_type = serializers.CharField()
    gpus = serializers.IntegerField()
    nodes = serializers.IntegerField()
    rate = serializers.FloatField(help_text="Steps/s of the whole job.")
    source = serializers.ChoiceField(["measured", "declared", "estimated"])  # type: ignore[assignment]  # a field's own
    share = serializers.FloatField(allow_null=True, help_text="Fraction of time that the policy gives it so.")


class DecisionOnJob(serializers.Serializer[Any]):
    job = serializers.UUIDField()
    gpu_type = serializers.CharField(allow_null=True, help_text="Null: it waits.")
    gpus = serializers.IntegerField()
    share = serializers.FloatField(allow_null=True, help_text="Fraction of time that the policy gives it.")
    reasons = ReasonAnswer(many=True, help_text="Why it waits; empty: it does not.")


class RoundInFull(RoundAnswer):
    decisions = serializers.SerializerMethodField()

    class Meta(RoundAnswer.Meta):
        fields = (*RoundAnswer.Meta.fields, "decisions")
        read_only_fields = fields

    @extend_schema_field(DecisionOnJob(many=True))
    def get_decisions(self, record: Round) -> list[dict[str, Any]]:
        return list(self.context["decisions"])


class ChangeAnswer(serializers.Serializer[Any]):
    """A change of the job with which the next round would give it GPUs."""

    kind = serializers.ChoiceField([(kind.value, kind.value) for kind in remedies.Kind])
    detail = serializers.CharField()
    changes = serializers.DictField(help_text="Fields of its spec, as they would be.")
    gpu_type = serializers.CharField(help_text="What it would get.")
    gpus = serializers.IntegerField()
    anew = serializers.BooleanField(help_text="True: submit it again so (clone). False: change it as it waits.")
    for_staff = serializers.BooleanField(help_text="It is more than the team may ask for.")


class WouldStartAnswer(serializers.Serializer[Any]):
    """Each change was tried by planning the next round with it."""

    note = serializers.CharField()
    options = ChangeAnswer(many=True, help_text="What costs others least comes first.")


class Explanation(serializers.Serializer[Any]):
    """Why a job is where it is, and how fast it would be elsewhere."""

    state = serializers.CharField()
    reason = serializers.CharField()
    message = serializers.CharField()
    reasons = ReasonAnswer(many=True)
    rates_used = RateUsed(many=True)
    round = serializers.IntegerField(allow_null=True)
    would_start = WouldStartAnswer(allow_null=True, help_text="Null: ask for it, with `would_start=true`.")


class PlanOption(serializers.Serializer[Any]):
    """One way to run the job, or a GPU type that has none."""

    gpu_type = serializers.CharField()
    gpus = serializers.IntegerField()
    nodes = serializers.IntegerField()
    rate = serializers.FloatField(allow_null=True, help_text="Steps/s of the whole job; null: it cannot run so.")
    source = serializers.ChoiceField(  # type: ignore[assignment]  # a field's own
        ["measured", "declared", "estimated"], allow_null=True
    )
    cost_per_hour = serializers.FloatField()
    run_seconds = serializers.FloatField(allow_null=True, help_text="Null while `total_steps` is not known.")
    cost = serializers.FloatField(allow_null=True)
    can_start_now = serializers.BooleanField()
    free_gpus = serializers.IntegerField(help_text="Of this type, healthy and on nodes in service.")
    reason = serializers.CharField(help_text="Why not now, or why never.")
    preferred = serializers.BooleanField(help_text="The fastest.")


class PlanAnswer(serializers.Serializer[Any]):
    """What a job would get that is not submitted; of an array, each member."""

    valid = serializers.BooleanField()
    spec = serializers.DictField(help_text="As it was understood, with what it leaves out at its default.")
    options = PlanOption(many=True)
    note = serializers.CharField()
