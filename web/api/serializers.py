"""REST serializers of nodes, rounds, explanations and plans."""

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from accounting_app.fairness.energy_ledger import energy_between
from cluster_app.engine_reports import engine_message
from cluster_app.models import Node
from estimation.durations import Basis
from estimation.node_lifetimes import NodeLifetime
from insight_app.explain.cost_and_time import CostUnit
from insight_app.explain.drain_estimate import NodeOccupancy
from insight_app.explain.what_if import ChangeKind
from jobs_app.measurement.energy import ENERGY_SOURCES
from jobs_app.models import Attempt
from jobs_app.serializers import ReasonAnswer
from jobs_app.submission.spec import JobSpec
from scheduler_app.models import Round
from scheduler_app.round.node_lifetimes import KnownLifetime

WHEN_EMPTY = "Estimated time at which the last job leaves a node that is out of service; null if unknown."

WHEN_PARETO_OPTIMAL = "Whether no other option is better in time or cost without being worse in the other."

WHEN_FORECAST = "When a cordoned node is empty, by the forecasts of its jobs; null where one of them has none."


class IntervalAnswer(serializers.Serializer[Any]):
    """Moments before which the event comes with 10, 50 and 90 %; null: it is more than three days away."""

    low = serializers.DateTimeField(allow_null=True)
    median = serializers.DateTimeField(allow_null=True)
    high = serializers.DateTimeField(allow_null=True)
    note = serializers.CharField(default="", help_text="For people: later than foreseen; empty: nothing to say.")


class EmptyForecastAnswer(IntervalAnswer):
    """When a node is empty, from the forecasts of the ends of its jobs."""

    made_at = serializers.DateTimeField(help_text="When the oldest of the forecasts was made.")


class NodeAnswer(serializers.ModelSerializer[Node]):
    """A node with its GPUs and occupancy."""

    gpu_type = serializers.CharField(source="gpu_type.name")
    engine = serializers.CharField(source="engine_id", help_text="Name of the engine that runs jobs on it.")
    engine_message = serializers.SerializerMethodField()
    price_per_gpu_hour = serializers.FloatField(allow_null=True, help_text="Null: that of its GPU type.")
    availability = serializers.SerializerMethodField()
    mean_up_s = serializers.SerializerMethodField()
    gpus = serializers.IntegerField()
    slow_gpus = serializers.IntegerField(help_text="GPUs on which jobs run slower than on others of their type.")
    free_gpus = serializers.SerializerMethodField()
    jobs_running = serializers.SerializerMethodField()
    empty = serializers.SerializerMethodField()
    empty_at = serializers.SerializerMethodField()
    empty_forecast = serializers.SerializerMethodField()

    class Meta:
        model = Node
        fields = (
            "name",
            "gpu_type",
            "gpus",
            "slow_gpus",
            "free_gpus",
            "state",
            "health",
            "reason",
            "emulated",
            "engine",
            "engine_message",
            "capacity_type",
            "notice_s",
            "availability",
            "mean_up_s",
            "price_per_gpu_hour",
            "lent_from",
            "lent_until",
            "lent_zone",
            "limits",
            "containers",
            "foreign_gpus",
            "foreign_cpus",
            "foreign_memory_mib",
            "cpus",
            "memory_mib",
            "storage_mib_s",
            "labels",
            "heard_at",
            "jobs_running",
            "empty",
            "empty_at",
            "empty_forecast",
        )
        read_only_fields = fields

    def get_availability(self, node: Node) -> float:
        """Part of the time in which it is up: as observed, and as nodes of its capacity type are."""
        return self._lifetime(node).availability

    def get_mean_up_s(self, node: Node) -> float:
        """Seconds that it is expected to stay up from its return on."""
        return self._lifetime(node).mean_up_s

    def _lifetime(self, node: Node) -> NodeLifetime:
        lifetimes: Mapping[str, KnownLifetime] = self.context["lifetimes"]
        return lifetimes[node.name].lifetime

    def get_free_gpus(self, node: Node) -> int:
        return max(int(node.gpus - node.busy_gpus) - node.foreign_gpus, 0)  # type: ignore[attr-defined]  # annotated

    def get_engine_message(self, node: Node) -> str:
        """Why it gets no new jobs, as far as its engine is the cause, and what the site refuses; empty if nothing."""
        return engine_message(node, self.context["engines"][node.engine_id])

    def get_jobs_running(self, node: Node) -> int:
        return self._occupancy(node).jobs_running

    def get_empty(self, node: Node) -> bool:
        """Whether no processes of jobs are left on the node."""
        return self._occupancy(node).empty

    @extend_schema_field(serializers.DateTimeField(allow_null=True, help_text=WHEN_EMPTY))
    def get_empty_at(self, node: Node) -> str | None:
        at = self._occupancy(node).empty_at
        return str(serializers.DateTimeField().to_representation(at)) if at else None

    @extend_schema_field(EmptyForecastAnswer(allow_null=True, help_text=WHEN_FORECAST))
    def get_empty_forecast(self, node: Node) -> dict[str, Any] | None:
        found = self._occupancy(node)
        return (
            dict(EmptyForecastAnswer({**vars(found.within), "made_at": found.made_at}).data) if found.within else None
        )

    def _occupancy(self, node: Node) -> NodeOccupancy:
        occupancy: NodeOccupancy = self.context["occupancies"][node.name]
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
    rate = serializers.FloatField(
        allow_null=True,
        help_text="Steps/s of the whole job; with two digits if estimated or completed; null, as limits and spread, if "
        "assumed: no rate of the job or its workload is known.",
    )
    low = serializers.FloatField(
        allow_null=True, help_text="Four of five runs lie between this and `high`, if the estimate is right."
    )
    high = serializers.FloatField(allow_null=True)
    spread = serializers.FloatField(allow_null=True, help_text="Standard deviation of the logarithm of the rate.")
    source = serializers.ChoiceField(Attempt.RateSource.choices)  # type: ignore[assignment]  # a field's own
    runs = serializers.IntegerField(help_text="Attempts of the workload behind it; 0: none, or not counted.")
    relative = serializers.FloatField(help_text="Steps/s per GPU, as a multiple of those in the slowest configuration.")
    share = serializers.FloatField(
        allow_null=True, help_text="Fraction of time in this configuration; null if the policy has no shares."
    )


class DecisionOnJob(serializers.Serializer[Any]):
    job = serializers.UUIDField()
    gpu_type = serializers.CharField(allow_null=True, help_text="Null if the job waits.")
    gpus = serializers.IntegerField()
    share = serializers.FloatField(
        allow_null=True, help_text="Fraction of time that the policy grants; null if it has no shares."
    )
    reasons = ReasonAnswer(many=True, help_text="Why the job waits; empty if it does not.")


class TypeConsumptionAnswer(serializers.Serializer[Any]):
    gpu_type = serializers.CharField()
    wh = serializers.FloatField(source="energy.watt_hours", allow_null=True, help_text="Null: not known.")
    energy_source = serializers.ChoiceField(
        ENERGY_SOURCES,
        source="energy.source",
        help_text="As read of the GPUs, or by the power of their type.",
    )


class RoundInFull(RoundAnswer):
    decisions = serializers.SerializerMethodField()
    energy = serializers.SerializerMethodField(
        help_text="Energy of the GPUs that jobs held until the next round, per GPU type, from the ledger's minutes."
    )

    class Meta(RoundAnswer.Meta):
        fields = (*RoundAnswer.Meta.fields, "decisions", "energy")
        read_only_fields = fields

    @extend_schema_field(TypeConsumptionAnswer(many=True))
    def get_energy(self, record: Round) -> list[dict[str, Any]]:
        return list(TypeConsumptionAnswer(energy_between(record.started_at, record.in_force_until()), many=True).data)

    @extend_schema_field(DecisionOnJob(many=True))
    def get_decisions(self, record: Round) -> list[dict[str, Any]]:
        return list(self.context["decisions"])


class ChangeAnswer(serializers.Serializer[Any]):
    """A change with which the next round would start the job."""

    kind = serializers.ChoiceField([(kind.value, kind.value) for kind in ChangeKind])
    detail = serializers.CharField()
    changes = serializers.DictField(help_text="Changed fields of the job's spec.")
    gpu_type = serializers.CharField(help_text="GPU type that the job would get.")
    gpus = serializers.IntegerField()
    anew = serializers.BooleanField(help_text="True: clone the job with this change. False: change the waiting job.")
    for_staff = serializers.BooleanField(help_text="Whether only an administrator may make the change.")


class WouldStartAnswer(serializers.Serializer[Any]):
    """Result of the what-if analysis: each change was tested by planning the next round with it."""

    note = serializers.CharField()
    options = ChangeAnswer(many=True, help_text="Changes, the least costly for other jobs first.")


class RemainingAnswer(serializers.Serializer[Any]):
    """Running time that is left: on the GPUs that the job holds, else on its fewest GPUs of average speed."""

    seconds = serializers.FloatField(help_text="Mean.")
    least_seconds = serializers.FloatField(help_text="One of ten jobs ends sooner, if the estimate is right.")
    most_seconds = serializers.FloatField(help_text="One of ten jobs ends later.")
    basis = serializers.ChoiceField([(basis.value, basis.value) for basis in Basis])
    jobs = serializers.IntegerField(help_text="Ended jobs behind it.")
    runs = serializers.BooleanField(help_text="Whether the job holds GPUs.")
    detail = serializers.CharField(help_text="What it is based on, in words.")


class NodeOddsAnswer(serializers.Serializer[Any]):
    node = serializers.CharField(help_text="For a gang elsewhere: as many nodes like it.")
    mean_up_s = serializers.FloatField(help_text="Seconds until the first of its nodes is expected to go.")
    done_in_s = serializers.FloatField(
        allow_null=True, help_text="Expected seconds until the job is done, losses included; null: not known."
    )
    in_time = serializers.FloatField(
        allow_null=True, help_text="Probability of being done before the deadline; null: it has none."
    )


class OutlookAnswer(serializers.Serializer[Any]):
    """Place of a waiting job in the queue, and when a start is expected."""

    place = serializers.IntegerField(help_text="Among the jobs that wait, by median start.")
    queue = serializers.IntegerField(help_text="Jobs that would start on free GPUs, and this one.")
    gpus = serializers.IntegerField(help_text="GPUs in service that the job may use.")
    held_gpus = serializers.IntegerField(help_text="Those of them that are not free.")
    start = IntervalAnswer()
    made_at = serializers.DateTimeField(help_text="When the queue was read.")
    detail = serializers.CharField(help_text="The same in words, without the times.")


class DeadlineAnswer(serializers.Serializer[Any]):
    """Probability that a job is done by its deadline, from its forecast."""

    deadline = serializers.DateTimeField()
    in_time = serializers.FloatField(help_text="Probability, 0 to 1.")
    made_at = serializers.DateTimeField(help_text="When the queue was read.")
    passed = serializers.BooleanField(help_text="Whether it has passed, and the job is not done.")


class PlacementAnswer(serializers.Serializer[Any]):
    """Odds of a running job where it is, and on the steadiest and the least steady other node of its GPU type."""

    placed = NodeOddsAnswer()
    elsewhere = NodeOddsAnswer(many=True)
    detail = serializers.CharField(help_text="The same in words.")


class WakingNodeAnswer(serializers.Serializer[Any]):
    node = serializers.CharField()
    gpu_type = serializers.CharField()
    since = serializers.DateTimeField(help_text="When it began to be woken.")
    expected_at = serializers.DateTimeField(help_text="When it takes jobs, if it boots in the time of its GPU type.")


class CheckpointsAnswer(serializers.Serializer[Any]):
    """What checkpoints and losses of nodes mean for the rest of a running job."""

    interval_s = serializers.FloatField(help_text="Seconds of work between two checkpoints that pay.")
    cost_s = serializers.FloatField(help_text="Of one checkpoint.")
    measured = serializers.BooleanField(help_text="Whether the cost was measured; else it is that of a restore.")
    restore_s = serializers.FloatField()
    at_stake_gpu_s = serializers.FloatField(help_text="GPU-seconds of work that a loss takes on average.")
    lost_gpu_s = serializers.FloatField(
        allow_null=True, help_text="GPU-seconds that losses are expected to take until its end; null: not known."
    )
    in_time = serializers.FloatField(
        allow_null=True,
        help_text="Probability of meeting the deadline, as far as losses of nodes decide it; null: it has none, or it "
        "is not known how much is left.",
    )


class RestartAnswer(serializers.Serializer[Any]):
    """What a restart costs the job where it is, or was last."""

    seconds = serializers.FloatField(help_text="Expected; `stop_s` and `start_s` together.")
    stop_s = serializers.FloatField(source="time.stop_s", help_text="From the request to stop until it has ended.")
    start_s = serializers.FloatField(source="time.start_s", help_text="From the launch to the first step it reports.")
    declared_s = serializers.FloatField(help_text="Time to restore that it declares, or the default.")
    source = serializers.ChoiceField([(name, name) for name in ("measured", "declared")])  # type: ignore[assignment]  # a field's own
    stops = serializers.IntegerField(source="time.stops", help_text="Measured stops of its workload behind it.")
    starts = serializers.IntegerField(source="time.starts", help_text="Measured starts of its workload behind it.")
    detail = serializers.CharField(help_text="The same in words.")


class Explanation(serializers.Serializer[Any]):
    """Why a job is in its state, and its throughput by configuration."""

    state = serializers.CharField()
    reason = serializers.CharField()
    message = serializers.CharField()
    reasons = ReasonAnswer(many=True)
    outlook = OutlookAnswer(allow_null=True, help_text="Null unless the job waits and has a forecast.")
    deadline = DeadlineAnswer(
        allow_null=True, help_text="Null: it has no deadline, or no forecast that reaches as far."
    )
    waking = WakingNodeAnswer(
        many=True, help_text="Nodes that are being woken, of types that it may use, while it waits for capacity."
    )
    remaining = RemainingAnswer(allow_null=True, help_text="Null for a job that has ended, or where nothing tells.")
    placement = PlacementAnswer(
        allow_null=True, help_text="Null unless it runs, and nodes of its type stay longer or shorter than its own."
    )
    checkpoints = CheckpointsAnswer(allow_null=True, help_text="Null unless it runs.")
    restart = RestartAnswer(allow_null=True, help_text="Null for a job that has ended.")
    rates_used = RateUsed(many=True)
    cpu_memory = serializers.CharField(
        allow_blank=True,
        help_text="Why the running attempt has its CPUs and memory; empty unless the round has chosen them.",
    )
    measurement = serializers.CharField(
        allow_blank=True, help_text="Why the running attempt measures its rate where it runs; empty if it does not."
    )
    others_wait = serializers.CharField(
        allow_blank=True,
        help_text="How long others wait for the GPUs that it holds; empty: it holds none, nobody waits for them, or it "
        "is not known.",
    )
    round = serializers.IntegerField(allow_null=True)
    would_start = WouldStartAnswer(
        allow_null=True, help_text="What-if analysis; null unless requested with `would_start=true`."
    )


class PlanOption(serializers.Serializer[Any]):
    """One way to run the job, or a GPU type on which it cannot run."""

    gpu_type = serializers.CharField()
    gpus = serializers.IntegerField()
    replicas = serializers.IntegerField(help_text="As many as GPUs, unless a replica takes several.")
    nodes = serializers.IntegerField()
    rate = serializers.FloatField(
        allow_null=True, help_text="Steps/s of the whole job; null if it cannot run so (`nodes` is 0), or is not known."
    )
    source = serializers.ChoiceField(Attempt.RateSource.choices, allow_null=True)  # type: ignore[assignment]  # a field's own
    cost_per_hour = serializers.FloatField()
    run_seconds = serializers.FloatField(
        allow_null=True, help_text="Null if `total_steps` is not given, or the rate not known."
    )
    cost = serializers.FloatField(allow_null=True)
    can_start_now = serializers.BooleanField()
    free_gpus = serializers.IntegerField(help_text="Free GPUs of this type: healthy and on nodes in service.")
    reason = serializers.CharField(help_text="Why it cannot start now, or never; empty if it can.")
    preferred = serializers.BooleanField(help_text="Whether this option is the fastest.")


class CostOption(serializers.Serializer[Any]):
    """Run time and cost of a job on one configuration: a GPU type and a number of GPUs."""

    gpu_type = serializers.CharField()
    gpus = serializers.IntegerField()
    run_seconds = serializers.FloatField()
    cost = serializers.FloatField(help_text="In `unit`.")
    preferred = serializers.BooleanField(help_text="Whether it is the fastest, as in `options` of the plan.")
    pareto_optimal = serializers.BooleanField(help_text=WHEN_PARETO_OPTIMAL)
    others_wait_h = serializers.FloatField(
        allow_null=True,
        help_text="Hours that others wait for it by the prices of the plan, if it begins now; null: not known.",
    )


class CostAndTimeAnswer(serializers.Serializer[Any]):
    """Run time and cost on each gang of each GPU type that the plan considers."""

    options = CostOption(many=True, help_text="All sizes of an elastic job, the fastest first.")
    unit = serializers.ChoiceField(
        CostUnit.choices,
        help_text="`gpu_hours` if one of the GPU types has no price per hour.",
    )
    note = serializers.CharField(help_text="What run times are estimated from, and why costs are in GPU-hours.")
    why_none = serializers.CharField(help_text="Why there are no options; empty if there are.")


@extend_schema_field(JobSpec)
class SpecField(serializers.DictField):
    """A spec that was admitted, and needs no validation."""


class PlanAnswer(serializers.Serializer[Any]):
    """Plan of a job from a dry run; of an array, of each member."""

    valid = serializers.BooleanField()
    spec = SpecField(help_text="The spec as parsed, with defaults filled in.")
    options = PlanOption(many=True)
    note = serializers.CharField()
    cost_and_time = CostAndTimeAnswer()
