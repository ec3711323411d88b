"""Input of the dry run of a job: GPU types, nodes with their free capacity, rates, limits and windows.

Free capacity is what open claims leave. The number of queries does not depend on the number of jobs.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import Count, F, Sum
from django.utils import timezone

from accounting_app.durations.boosted_model import read_model
from accounting_app.durations.duration_history import history_of, read_ended_jobs
from accounting_app.fairness.budgets import TeamBudget, budgets_of
from cluster_app.models import Gpu, GpuType, Node
from cluster_app.storage import OF_ENGINE, PLACES, nodes_with, offers, places_of
from estimation.boosted_durations import DurationEstimator
from insight_app.explain.cost_and_time import OthersWait
from insight_app.gpu_prices.planned import PlannedHours, read_planned_hours
from jobs_app.models import Attempt, GpuClaim, Job, Team, Throughput
from scheduler_app.round.inputs import (
    DeclaredRates,
    DeclaredSensitivity,
    JobRow,
    MeasuredRow,
    TypeRow,
    measured_rows,
    noise_of,
)
from scheduler_app.round.known_workloads import KnownRate, read_known_rates
from scheduler_app.windows.reading import WindowRow, read_windows


@dataclass(frozen=True)
class FreeOnNode:
    """A node in service: its GPUs and its free capacity."""

    gpu_type_id: int
    engine: str
    gpus: int
    free_gpus: int
    free_cpus: int
    free_memory_mib: int
    has_storage: bool = True
    """Whether it has all storage that the job names."""
    id: int = 0


@dataclass(frozen=True)
class DryRunInputs:
    """Input of the dry run, read from the database."""

    types: Sequence[TypeRow]
    nodes: Sequence[FreeOnNode]
    measured: list[MeasuredRow]
    known_rates: Sequence[KnownRate]
    noise: Mapping[tuple[int, str], tuple[float, float]]
    quota: str
    """Quota or budget that keeps the job from starting now; empty if none does."""
    budget: TeamBudget | None = None
    """Of its team."""
    windows: Sequence[WindowRow] = ()
    estimator: DurationEstimator | None = None
    """Durations by jobs that ended; None for a job that states its steps."""
    left_on_types: Mapping[int, int] = field(default_factory=dict)
    """GPU type → GPUs that a limit leaves to the team there; types without a limit are not among them."""
    planned: PlannedHours | None = None
    """Prices of the hours to come; None: the policy has none in hours, or no forecast has been made lately."""

    def others_wait_h(self, since: datetime) -> OthersWait:
        """What a run from then on costs others, by GPU type, GPUs and seconds."""
        if self.planned is None:
            return lambda *_: None
        planned = self.planned
        return lambda gpu_type, gpus, seconds: planned.waiting_h(gpu_type, gpus, since, planned.end_of(since, seconds))

    def quota_on(self, kind: TypeRow, gpus: int) -> str:
        """Note of the team's quota that does not allow so many GPUs of the type now; empty if there is none."""
        left = self.left_on_types.get(kind.id, gpus)
        return f"quota: it leaves the team {left} {kind.name} now" if left < gpus else ""

    def nodes_of(self, kind: TypeRow) -> list[FreeOnNode]:
        return [node for node in self.nodes if node.gpu_type_id == kind.id]

    def with_storage(self, kind: TypeRow) -> list[FreeOnNode]:
        return [node for node in self.nodes_of(kind) if node.has_storage]


def read_inputs(job: JobRow, team: Team) -> DryRunInputs:
    """Read the inputs in ten queries, more for prices, budgets, windows, batches, storage and lengths of jobs.

    None depends on the queue.
    """
    types = [TypeRow(*row) for row in GpuType.objects.order_by("name").values_list(*TypeRow._fields)]
    measured = measured_rows(Throughput.objects.filter(team=team, workload=job.workload))
    noise = noise_of([job.workload] if job.batch_size else [])
    now = timezone.now()
    budget = budgets_of([team], now).get(team.pk)
    nodes, quota = free_on_nodes(job.needs), _budget(budget) or _quota(job, team)
    return DryRunInputs(
        types,
        nodes,
        measured,
        read_known_rates(),
        noise,
        quota,
        budget=budget,
        windows=read_windows(now),
        left_on_types=_left_on_types(team),
        planned=read_planned_hours(now),
        estimator=None if job.total_steps else DurationEstimator(history_of(read_ended_jobs()), read_model()),
    )


def free_on_nodes(needs: Sequence[str] = ()) -> list[FreeOnNode]:
    """Nodes in service, and whether each meets the job's needs."""
    healthy = Gpu.objects.present().filter(healthy=True, node__in=Node.objects.schedulable())
    gpus = dict(healthy.order_by().values_list("node").annotate(Count("pk")))
    held: Mapping[int, tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0), _held_by_node())
    columns = (
        "pk",
        "gpu_type_id",
        "engine_id",
        F("cpus") - F("foreign_cpus"),
        F("memory_mib") - F("foreign_memory_mib"),
    )
    nodes = Node.objects.schedulable().values_list(*columns, "foreign_gpus", *OF_ENGINE)
    places = PLACES.intersection(needs)
    able = nodes_with(needs) if len(needs) > len(places) else gpus.keys()
    return [
        FreeOnNode(
            kind,
            engine,
            gpus[pk],
            max(gpus[pk] - held[pk][0] - foreign, 0),
            cpus - held[pk][1],
            memory - held[pk][2],
            has_storage=pk in able and places <= offers("", of_engine, trusted=trusted),
            id=pk,
        )
        for pk, kind, engine, cpus, memory, foreign, of_engine, trusted in nodes
        if pk in gpus
    ]


def _held_by_node() -> dict[int, tuple[int, int, int]]:
    """GPUs, CPUs and MiB that attempts hold or await, by node."""
    claims = GpuClaim.objects.open().filter(gpu__present=True, gpu__healthy=True).order_by().values("gpu__node")
    sums = claims.annotate(
        gpus=Count("gpu", distinct=True),
        cpus=Sum(F("attempt__job__cpus_per_gpu")),
        memory=Sum(F("attempt__job__memory_per_gpu_mib")),
    )
    return {row["gpu__node"]: (row["gpus"], row["cpus"], row["memory"]) for row in sums}


def _budget(budget: TeamBudget | None) -> str:
    if budget is None or not budget.stops_starts:
        return ""
    return f"budget: team {budget.team} has used it up until {budget.resets_at:%F}"


def _quota(job: JobRow, team: Team) -> str:
    live = Attempt.objects.live().filter(job__team=team)
    for cap, attempts, whose in (
        (team.max_gpus, live, f"team {team}"),
        (team.max_gpus_per_member, live.filter(job__owner=job.owner_id), f"your jobs in team {team}"),
    ):
        used = attempts.aggregate(used=Sum("gpu_count"))["used"] or 0 if cap is not None else 0
        if cap is not None and used + job.gpus_min > cap:
            return f"quota: {whose} may use {cap} GPUs at once; {used} are in use"
    return ""


def _left_on_types(team: Team) -> dict[int, int]:
    """GPUs of each type that the team may still use within its quotas."""
    limits = {quota.gpu_type_id: most for quota in team.quotas.all() if (most := quota.most) is not None}
    live = Attempt.objects.live().filter(job__team=team, gpu_type__in=limits).order_by()
    used = dict(live.values_list("gpu_type").annotate(Sum("gpu_count"))) if limits else {}
    return {kind: max(most - used.get(kind, 0), 0) for kind, most in limits.items()}


def row_of(job: Job) -> JobRow:
    """Input row of the job, as a round would read it."""
    columns: dict[str, Any] = {name: getattr(job, name, None) for name in JobRow._fields}
    parsed: dict[str, Any] = {
        "rates": DeclaredRates.of(job.rates),
        "sensitivity": DeclaredSensitivity.of(job.sensitivity),
    }
    parsed |= {"restart_s": job.restore_s}
    return JobRow(**columns | parsed | {"gpus_per_replica": job.replica, "volunteers": places_of(job.volunteers)})
