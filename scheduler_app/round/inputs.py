"""Input rows of a round, read in bulk: a fixed number of queries, no transaction."""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from functools import lru_cache, partial
from itertools import chain
from math import sqrt
from typing import Any, NamedTuple, Self, TypeVar
from uuid import UUID

from django.db.models import Count, F, Max, Q, QuerySet, TextField
from django.db.models.functions import Cast

from allocation.cpu_memory.sensitivity import DataSet
from cluster_app.models import Engine, Gpu, GpuType, Node, NodeEvent
from cluster_app.replica_size import GpusPerReplica
from cluster_app.storage import OF_ENGINE, SITE, StoragePaths, missing_storage, needs_of, offers, places_of
from estimation.boosted_durations import BoostedDurations
from estimation.profile import Measurement
from estimation.stages import StageRatio
from jobs_app.models import Attempt, GradientNoise, Job, JobDependency, JobEvent, Team, TeamQuota, Throughput
from jobs_app.models.job import JobQuerySet, arrival_of
from jobs_app.models.throughput import MOST_RUNS
from jobs_app.submission.volunteers import volunteers_now
from scheduler_app.fairness.budgets import TeamBudget, read_budgets, used_up
from scheduler_app.forecasts.array_samples import ArraySample, read_array_samples
from scheduler_app.forecasts.boosted_model import read_model
from scheduler_app.forecasts.duration_history import EndedJob, read_ended_jobs, read_open_forecasts
from scheduler_app.forecasts.stage_history import read_stage_ratios
from scheduler_app.models import GpuClaim, TeamBacklog
from scheduler_app.round.known_workloads import KnownRate, read_known_rates
from scheduler_app.round.node_lifetimes import node_loss_rates
from scheduler_app.windows.reading import WindowRow, read_windows


class MeasuredRow(NamedTuple):
    """A row of `Throughput`."""

    team_id: int
    workload: str
    gpu_type_id: int
    gpus: int
    nodes: int
    batch_size: int
    steps_per_second: float
    reports: int
    spread: float
    runs: int = 0
    log_sum: float = 0.0
    log_square_sum: float = 0.0

    @property
    def measurement(self) -> Measurement:
        latest = min(self.runs, MOST_RUNS)
        variance = self.log_square_sum / latest - (self.log_sum / latest) ** 2 if latest else 0.0
        deviation = sqrt(max(variance, 0.0))
        return Measurement(self.steps_per_second, self.reports, self.spread, self.runs, latest, deviation)


class TypeRow(NamedTuple):
    id: int
    name: str
    memory_mib: int
    tflops: float | None
    bandwidth_gbs: float | None
    price_per_hour: float


class NodeRow(NamedTuple):
    id: int
    name: str
    gpu_type_id: int
    cpus: int
    memory_mib: int
    foreign_gpus: int
    """GPUs that jobs outside Motley use."""
    foreign_cpus: int
    foreign_memory_mib: int
    engine_id: str
    """Its name."""
    storage_mib_s: int | None
    """Bandwidth of its storage; None: unknown."""
    emulated: bool
    price_per_gpu_hour: Decimal | None
    """None: that of its GPU type."""
    in_service: bool
    storage: frozenset[str] = frozenset()
    """Names of the storage that it has, none that was found missing lately; and what it offers else."""
    missing: frozenset[str] = frozenset()
    tunes: bool = True
    """Whether CPUs and memory may be given there beyond a fixed booking: Slurm books them once for all."""


class GpuRow(NamedTuple):
    id: int
    node_id: int
    healthy: bool
    slower_by: float = 0.0
    """Than its type, a part of 1."""


class AttemptRow(NamedTuple):
    id: int
    job_id: UUID
    state: str
    gpu_type_id: int
    gpu_count: int
    nodes: list[str]
    started_at: datetime | None
    cpus_per_gpu: int
    memory_per_gpu_mib: int
    measures: bool
    """Whether it was placed where it is to measure its rate there."""


DeclaredFor = tuple[tuple[str, ...], ...]
"""GPU types with declared rates, each followed by its GPU counts; thousands of jobs share one such tuple."""


class DeclaredRates(NamedTuple):
    """Rates declared by a job's owner: GPU types with GPU counts, and the steps/s in the same order."""

    gpus_by_type: DeclaredFor
    steps_per_s: tuple[float, ...]

    @classmethod
    def of(cls, rates: Mapping[str, Mapping[str, float]]) -> Self:
        """From steps/s by type and GPUs."""
        gpus_by_type = tuple((kind, *by) for kind, by in rates.items())
        return cls(gpus_by_type, tuple(chain.from_iterable(by.values() for by in rates.values())))


class DeclaredSensitivity(NamedTuple):
    """Sensitivity to CPUs and memory as declared by a job's owner; hashable."""

    curve: tuple[tuple[int, float], ...]
    """CPUs per GPU, and the throughput with these."""
    data: DataSet | None

    @classmethod
    def of(cls, declared: Mapping[str, Any]) -> Self | None:
        """From the job's column; None: nothing is declared."""
        if not declared:
            return None
        curve = tuple((int(cpus), float(value)) for cpus, value in declared["cpu_curve"].items())
        if "dataset_mib" not in declared:
            return cls(curve, None)
        size_gib = declared["dataset_mib"] / 1024
        return cls(curve, DataSet(size_gib, declared["bytes_per_sample"], declared["samples_per_second"]))


class JobRow(NamedTuple):
    id: UUID
    name: str
    state: str
    team_id: int
    owner_id: int
    array_id: UUID | None
    at_a_time: int | None
    array_tasks: int | None
    gpus_min: int
    gpus_max: int
    gpus_per_replica: GpusPerReplica
    mounts: list[str]
    image: str
    volunteers: tuple[str, ...]
    """What its nodes must be, as of `places_of`; empty where all nodes are."""
    gpu_types: list[str]
    gpu_memory_mib: int
    cpus_per_gpu: int
    memory_per_gpu_mib: int
    sensitivity: DeclaredSensitivity | None
    workload: str
    rates: DeclaredRates
    batch_size: dict[str, int]
    total_steps: int | None
    reported_total_steps: int | None
    step: int
    grace_s: int
    restore_s: float
    preemptible: bool
    uneven_gang: bool
    weight: float
    begin_time: datetime | None
    deadline: datetime | None
    time_limit_s: int | None
    ran_s: float
    created_at: datetime
    attained_gpu_s: float
    work_lost_gpu_s: float
    attempt_count: int

    @property
    def arrived_at(self) -> datetime:
        """When it could first have started: its submission, or its begin time."""
        return arrival_of(self.created_at, self.begin_time)

    @property
    def steps_in_all(self) -> int | None:
        """Declared, else as it reports them; None: not known."""
        return self.total_steps or self.reported_total_steps

    @property
    def needs(self) -> tuple[str, ...]:
        """What its nodes must have and be: storage by name, containers, and whose they are."""
        return needs_of(self.mounts, self.image, self.volunteers)


CACHE_SIZE = 50_000
"""Parsed documents in each cache; most jobs of a round were in the previous one."""


@lru_cache(CACHE_SIZE)
def _document(text: str) -> Any:
    """Parse a JSON text; the result is shared and must not be changed."""
    return json.loads(text)


@lru_cache(CACHE_SIZE)
def _replica(text: str) -> GpusPerReplica:
    return GpusPerReplica.of(json.loads(text))


@lru_cache(CACHE_SIZE)
def _sensitivity(text: str) -> DeclaredSensitivity | None:
    return DeclaredSensitivity.of(json.loads(text))


@lru_cache(CACHE_SIZE)
def _declared(text: str) -> DeclaredRates:
    return DeclaredRates.of(json.loads(text))


Parsers = Mapping[str, Callable[[str], Any]]
"""JSON column → its parser."""
ATTEMPT_DOCUMENTS: Parsers = {"nodes": _document}
JOB_DOCUMENTS: Parsers = {
    "gpus_per_replica": _replica,
    "mounts": _document,
    "gpu_types": _document,
    "sensitivity": _sensitivity,
    "rates": _declared,
    "batch_size": _document,
}
OF_OTHERS: Mapping[Any, Any] = {
    "at_a_time": "array__at_a_time",
    "array_tasks": F("array__end") - F("array__start") + 1,
    "volunteers": volunteers_now(),
}
"""Columns of a job's row that its array has, or its team may narrow."""
Row = TypeVar("Row", AttemptRow, JobRow)


class TeamRow(NamedTuple):
    id: int
    name: str
    weight: float
    max_gpus: int | None
    max_gpus_per_member: int | None


class TypeQuotaRow(NamedTuple):
    team_id: int
    gpu_type_id: int
    gpus: int
    borrowing_limit: int | None
    lending_limit: int | None


@dataclass(frozen=True)
class InputRows:
    """All rows that a round is decided from."""

    types: list[TypeRow]
    nodes: list[NodeRow]
    gpus: list[GpuRow]
    holders: Mapping[int, int]
    """GPU → the attempt that holds it."""
    waiting_claims: Mapping[int, int]
    """GPU → the attempt whose claim waits until the GPU is vacated."""
    attempts: Mapping[int, AttemptRow]
    jobs: list[JobRow]
    """Schedulable queued jobs and jobs with an attempt, in the order of submission."""
    waiting_for: Mapping[UUID, list[str]]
    """Queued jobs with unmet dependencies → the jobs that they wait for."""
    begin_times: Mapping[UUID, datetime]
    """Queued jobs, not held, that wait for their begin time → when it comes."""
    teams: Mapping[int, TeamRow]
    backlog_s: Mapping[int, float]
    """Team → seconds of the whole cluster that it is behind its share."""
    measured: list[MeasuredRow]
    noise: Mapping[tuple[int, str], tuple[float, float]]
    """Team and workload → the gradient's squared norm, and the variance of one sample's."""
    received: list["RunInterval"]
    busy_in_arrays: Mapping[UUID, int]
    """Array → number of its members that hold GPUs or have a waiting claim."""

    unfinished_in_arrays: Mapping[UUID, int] = field(default_factory=dict)
    """Array → number of its unfinished members; none where no job of the round is of an array."""
    array_samples: Mapping[UUID, ArraySample] = field(default_factory=dict)
    """Array of jobs that declare no length → what its members have told that ended."""

    type_quotas: Sequence[TypeQuotaRow] = ()
    """Quotas of teams on GPU types."""
    known_rates: Sequence[KnownRate] = ()
    """Measured rates of all workloads, whether they have a job in the round or not."""
    loss_rates: Mapping[str, float] = field(default_factory=dict)
    """Expected losses per second of each node; empty where all nodes are stable."""
    ended: Sequence[EndedJob] = ()
    """Jobs that succeeded last, the newest first; none where every job tells its length."""
    duration_model: BoostedDurations | None = None
    """By which durations are estimated where it was better than those jobs alone."""
    stages: Mapping[UUID, StageRatio] = field(default_factory=dict)
    """Jobs that start after others → what these took beside what was expected of them."""
    forecasts: Collection[UUID] = ()
    """Jobs with an open forecast."""
    budgets: Mapping[int, TeamBudget] = field(default_factory=dict)
    """Team → its budget; the weights of teams are those that soft ones leave."""
    over_budget: Mapping[UUID, TeamBudget] = field(default_factory=dict)
    """Queued jobs that could start but for the budget of their team, which is used up."""
    windows: Sequence[WindowRow] = ()
    """The next occurrence of each window of nodes."""
    checkpoint_s: Mapping[UUID, float] = field(default_factory=dict)
    """Job → seconds that its last checkpoint took; none where there are no windows."""
    unreadable: Mapping[UUID, Exception] = field(default_factory=dict)
    """Jobs whose columns cannot be read."""

    def without(self, jobs: Collection[UUID]) -> "InputRows":
        """Without these jobs; their attempts keep their GPUs."""
        return replace(self, jobs=[job for job in self.jobs if job.id not in jobs])

    @property
    def missing_storage(self) -> dict[str, list[str]]:
        """Storage → the nodes on which it was found missing lately."""
        names = sorted({name for node in self.nodes for name in node.missing})
        return {name: [node.name for node in self.nodes if name in node.missing] for name in names}


def read_input_rows(shares_since: datetime, now: datetime, *, begin_by: datetime | None = None) -> InputRows:
    """The rows of a round now; `begin_by`: with the jobs whose begin time comes until then."""
    attempts, nodes, windows = _attempts(), _nodes(), read_windows(now)
    budgets = read_budgets(now)
    jobs, unreadable = _jobs(now, nodes, begin_by or now, budgets)
    estimated = any(job.steps_in_all is None for job in jobs)
    claims = list(GpuClaim.objects.open().values_list("gpu_id", "attempt_id", "held_from"))
    return InputRows(
        types=[TypeRow(*row) for row in GpuType.objects.order_by("name").values_list(*TypeRow._fields)],
        nodes=nodes,
        gpus=[GpuRow(*r) for r in Gpu.objects.present().order_by("node__name", "index").values_list(*GpuRow._fields)],
        holders={gpu: attempt for gpu, attempt, held_from in claims if held_from},
        waiting_claims={gpu: attempt for gpu, attempt, held_from in claims if not held_from},
        attempts=attempts,
        jobs=jobs,
        waiting_for=_waiting_for(),
        begin_times=_begin_times(now),
        teams=_teams(budgets),
        type_quotas=_quotas(),
        backlog_s=dict(TeamBacklog.objects.filter(cluster_s__gt=0).values_list("team", "cluster_s")),
        measured=read_measured(jobs),
        noise=noise_of(job.workload for job in jobs if job.batch_size),
        received=[*_received(attempts.values()), *_received_before(shares_since)],
        busy_in_arrays=_in_arrays(Job.objects.active()),
        unfinished_in_arrays=_in_arrays(Job.objects.unfinished()) if any(job.array_id for job in jobs) else {},
        array_samples=read_array_samples({job.array_id for job in jobs if job.array_id and job.total_steps is None}),
        known_rates=read_known_rates(),
        ended=read_ended_jobs() if estimated else [],
        duration_model=read_model() if estimated else None,
        stages=read_stage_ratios(JobDependency.objects.filter(child__finished_at=None)) if estimated else {},
        forecasts=read_open_forecasts(),
        loss_rates=node_loss_rates(now),
        budgets=budgets,
        over_budget=_over_budget(now, used_up(budgets)),
        windows=windows,
        checkpoint_s=_checkpoint_s() if windows else {},
        unreadable=unreadable,
    )


def _nodes() -> list[NodeRow]:
    usable = set(Node.objects.schedulable().values_list("pk", flat=True))
    of_others = ("engine__name", "gpu_type__name", "containers", *OF_ENGINE)
    rows = Node.objects.order_by("name").values_list(*NodeRow._fields[:-4], *of_others)
    paths, missing = StoragePaths.read(), missing_storage()
    return [
        NodeRow._make(
            [
                *row,
                row[0] in usable,
                frozenset(paths.on(engine, kind)) - missing.get(row[0], frozenset())
                | offers(containers, of_engine, trusted=trusted),
                frozenset(paths.on(engine, kind)) & missing.get(row[0], frozenset()),
                of_engine == Engine.Kind.LOCAL,
            ]
        )
        for *row, engine, kind, containers, of_engine, trusted in rows
    ]


def _attempts() -> dict[int, AttemptRow]:
    rows = Attempt.objects.live().values_list(*_columns(AttemptRow, ATTEMPT_DOCUMENTS))
    return {row.id: row for row in _parsed(AttemptRow, ATTEMPT_DOCUMENTS, rows, {})}


def _jobs(
    now: datetime, nodes: Sequence[NodeRow], begin_by: datetime, budgets: Mapping[int, TeamBudget]
) -> tuple[list[JobRow], dict[UUID, Exception]]:
    """Jobs of the round, and those whose columns cannot be read; no waiting ones of teams whose budget is used up.

    Whose machines they may run on matters only where not all nodes are the site's.
    """
    unreadable: dict[UUID, Exception] = {}
    schedulable = Job.objects.schedulable(now, begin_by=begin_by)
    if closed := [team for team, budget in used_up(budgets).items() if budget.resets_at > begin_by]:
        schedulable = schedulable.exclude(team__in=closed)
    waiting = Q(pk__in=schedulable.values("pk"))
    jobs = read_job_rows(Job.objects.filter(waiting | Q(state__in=Job.ACTIVE)), nodes, unreadable)
    of_site_alone = not nodes or SITE in _everywhere(nodes)
    return (jobs if of_site_alone else _with_bound_ones(jobs)), unreadable


def read_job_rows(jobs: JobQuerySet, nodes: Sequence[NodeRow], unreadable: dict[UUID, Exception]) -> list[JobRow]:
    """The rows of these jobs in the order of submission; those whose columns cannot be read are noted."""
    documents: dict[str, Callable[[str], Any]] = {
        **JOB_DOCUMENTS,
        "volunteers": partial(_places_beyond, _everywhere(nodes)),
    }
    fields = [OF_OTHERS.get(name, name) for name in _columns(JobRow, JOB_DOCUMENTS)]
    return list(_parsed(JobRow, documents, jobs.order_by("id").values_list(*fields), unreadable))


def _everywhere(nodes: Sequence[NodeRow]) -> frozenset[str]:
    """What all nodes offer."""
    return frozenset.intersection(*(node.storage for node in nodes)) if nodes else frozenset()


def _places_beyond(everywhere: frozenset[str], volunteers: str) -> tuple[str, ...]:
    return tuple(place for place in places_of(volunteers) if place not in everywhere)


def _with_bound_ones(jobs: Sequence[JobRow]) -> list[JobRow]:
    """The jobs, those that have run at the site bound to it: what they saved is there."""
    of_site = Attempt.objects.filter(started_at__isnull=False, job__finished_at=None)
    agents = Engine.objects.filter(kind=Engine.Kind.AGENT).values("name")
    bound = set(of_site.exclude(engine__in=agents).order_by().values_list("job", flat=True).distinct())
    return [job._replace(volunteers=(SITE,)) if job.id in bound else job for job in jobs]


def _columns(kind: type[Row], documents: Collection[str]) -> list[Any]:
    """The columns of a row type, JSON columns cast to text."""
    return [Cast(name, TextField()) if name in documents else name for name in kind._fields]


def _parsed(
    kind: type[Row], documents: Parsers, rows: Iterable[Sequence[Any]], unreadable: dict[Any, Exception]
) -> Iterator[Row]:
    """Rows with their JSON columns parsed; equal texts are parsed once. Those that cannot be are noted by their ids."""
    places = [(kind._fields.index(name), parse) for name, parse in documents.items()]
    for row in rows:
        values = list(row)
        try:
            for place, parse in places:
                values[place] = parse(values[place])
        except Exception as error:  # a row that somebody has written past the service must not stop all others
            unreadable[row[0]] = error
        else:
            yield kind(*values)


def _waiting_for() -> dict[UUID, list[str]]:
    waiting: dict[UUID, list[str]] = defaultdict(list)
    unmet = JobDependency.objects.unmet().filter(child__state=Job.State.QUEUED, child__held=False)
    for child, parent, state in unmet.values_list("child_id", "parent__name", "parent__state"):
        waiting[child].append(f"{parent} ({state})")
    return waiting


def _quotas() -> list[TypeQuotaRow]:
    """Quotas of teams that are not retired."""
    quotas = TeamQuota.objects.order_by().filter(team__retired_at=None)
    return [TypeQuotaRow(*row) for row in quotas.values_list(*TypeQuotaRow._fields)]


def _teams(budgets: Mapping[int, TeamBudget]) -> dict[int, TeamRow]:
    """All teams, with the weights that soft budgets leave them."""
    rows = (TeamRow(*row) for row in Team.objects.values_list(*TeamRow._fields))
    return {
        row.id: row._replace(weight=row.weight * budgets[row.id].weight_part) if row.id in budgets else row
        for row in rows
    }


def _over_budget(now: datetime, closed: Mapping[int, TeamBudget]) -> dict[UUID, TeamBudget]:
    if not closed:
        return {}
    waiting = Job.objects.schedulable(now).filter(team__in=closed)
    return {pk: closed[team] for pk, team in waiting.values_list("pk", "team")}


def _begin_times(now: datetime) -> dict[UUID, datetime]:
    waiting = Job.objects.queued().filter(begin_time__gt=now, held=False)
    return dict(waiting.values_list("pk", "begin_time"))  # type: ignore[arg-type]  # none is null


def _checkpoint_s() -> dict[UUID, float]:
    told = Attempt.objects.filter(job__finished_at=None, checkpoint_s__isnull=False)
    return dict(told.order_by("number").values_list("job", "checkpoint_s"))  # type: ignore[arg-type]  # none is null


def read_measured(jobs: Iterable[JobRow]) -> list[MeasuredRow]:
    """Measured rates of the workloads of these jobs."""
    workloads = {job.workload for job in jobs}
    return measured_rows(Throughput.objects.filter(workload__in=workloads))


def measured_rows(rates: QuerySet[Throughput]) -> list[MeasuredRow]:
    return [MeasuredRow(*row) for row in rates.values_list(*MeasuredRow._fields)]


def noise_of(workloads: Iterable[str]) -> dict[tuple[int, str], tuple[float, float]]:
    """Gradient noise of workloads whose batch size is tuned; no query where there are none."""
    names = set(workloads)
    rows = GradientNoise.objects.filter(workload__in=names) if names else GradientNoise.objects.none()
    found = rows.values_list("team_id", "workload", "grad_sqr", "sample_var")
    return {(team, workload): (sqr, var) for team, workload, sqr, var in found}


RunInterval = tuple[UUID, int, datetime, datetime | None]
"""Job, GPU type, start and end of an attempt that ran; no end: it still runs."""


def _received(live: Iterable[AttemptRow]) -> list[RunInterval]:
    return [(a.job_id, a.gpu_type_id, a.started_at, None) for a in live if a.started_at is not None]


def _received_before(since: datetime) -> list[RunInterval]:
    """Attempts that ended after this moment, of unfinished jobs."""
    ended = Attempt.objects.filter(ended_at__gt=since, started_at__isnull=False, job__finished_at=None)
    return list(ended.values_list("job_id", "gpu_type_id", "started_at", "ended_at"))  # type: ignore[arg-type]  # as asked


def _in_arrays(jobs: JobQuerySet) -> dict[UUID, int]:
    """Number of these jobs in each array."""
    return dict(jobs.exclude(array=None).values_list("array").annotate(Count("pk")).order_by())


def newest_events() -> tuple[int, int]:
    """Ids of the newest job event and node event that call for a round."""
    waking = JobEvent.objects.filter(kind__in=JobEvent.WAKING)
    jobs, nodes = (events.aggregate(Max("pk"))["pk__max"] or 0 for events in (waking, NodeEvent.objects.all()))
    return jobs, nodes
