"""The rows of a round, read in bulk: a fixed number of queries, no transaction."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from uuid import UUID

from django.db.models import Count, Max, Min, Value
from django.db.models.functions import Coalesce

from accounting_app.durations.array_samples import read_array_samples
from accounting_app.durations.boosted_model import read_model
from accounting_app.durations.duration_history import read_ended_jobs, read_open_forecasts
from accounting_app.durations.stage_history import read_stage_ratios
from accounting_app.fairness.budgets import TeamBudget, read_budgets, used_up
from accounting_app.models import TeamBacklog
from cluster_app.models import Engine, Gpu, GpuType, Node, NodeEvent
from cluster_app.models.engine import booked_per_gpu
from cluster_app.storage import OF_ENGINE, StoragePaths, missing_storage, offers
from jobs_app.models import Attempt, GpuClaim, Job, JobDependency, JobEvent, Team, TeamQuota
from jobs_app.models.attempt import AttemptQuerySet
from jobs_app.models.job import JobQuerySet
from scheduler_app.round.inputs.jobs import live_attempts, round_jobs
from scheduler_app.round.inputs.measured import noise_of, read_measured
from scheduler_app.round.inputs.rows import (
    AttemptRow,
    GpuRow,
    InputRows,
    NodeRow,
    Ran,
    RunInterval,
    TeamRow,
    TypeQuotaRow,
    TypeRow,
)
from scheduler_app.round.known_workloads import read_known_rates
from scheduler_app.round.node_lifetimes import node_loss_rates
from scheduler_app.windows.reading import read_windows


def read_input_rows(shares_since: datetime, now: datetime, *, begin_by: datetime | None = None) -> InputRows:
    """The rows of a round now; `begin_by`: with the jobs whose begin time comes until then."""
    attempts, nodes, windows = live_attempts(), _nodes(), read_windows(now)
    budgets = read_budgets(now)
    jobs, unreadable = round_jobs(now, nodes, begin_by or now, budgets)
    estimated = any(job.steps_in_all is None for job in jobs)
    claims = list(GpuClaim.objects.open().values_list("gpu_id", "attempt_id", "held_from"))
    return InputRows(
        types=[TypeRow(*row) for row in GpuType.objects.order_by("name").values_list(*TypeRow._fields)],
        nodes=nodes,
        gpus=_gpus(nodes),
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
        ran=_ran(now),
        busy_in_arrays=_in_arrays(Job.objects.active()),
        unfinished_in_arrays=_in_arrays(Job.objects.unfinished()) if any(job.array_id for job in jobs) else {},
        array_samples=read_array_samples({job.array_id for job in jobs if job.array_id and job.total_steps is None}),
        known_rates=read_known_rates(),
        ended=read_ended_jobs() if estimated else [],
        duration_model=read_model() if estimated else None,
        stages=read_stage_ratios(JobDependency.objects.filter(child__in=Job.objects.unfinished())) if estimated else {},
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
    of_others = ("engine__options", "engine__name", "gpu_type__name", "containers", *OF_ENGINE)
    rows = Node.objects.order_by("name").values_list(*NodeRow._fields[:-7], *of_others)
    paths, missing, cores = StoragePaths.read(), missing_storage(), _cpus_per_core()
    return [
        NodeRow._make(
            [
                *row,
                row[0] in usable,
                frozenset(paths.on(engine, kind)) - missing.get(row[0], frozenset())
                | offers(containers, of_engine, trusted=trusted),
                frozenset(paths.on(engine, kind)) & missing.get(row[0], frozenset()),
                of_engine != Engine.Kind.SLURM,
                *booked_per_gpu(of_engine, options),
                cores.get((engine, row[1]), 1),
            ]
        )
        for *row, options, engine, kind, containers, of_engine, trusted in rows
    ]


def _gpus(nodes: Iterable[NodeRow]) -> list[GpuRow]:
    """GPUs of these nodes: the rows are no snapshot, and another node may have come since."""
    known = {node.id for node in nodes}
    rows = Gpu.objects.present().order_by("node__name", "index").values_list(*GpuRow._fields)
    return [gpu for gpu in map(GpuRow._make, rows) if gpu.node_id in known]


def _cpus_per_core() -> dict[tuple[str, str], int]:
    """CPUs of a core of each node, by engine and name, where the engine books CPUs and reports them."""
    reported = Engine.objects.filter(kind=Engine.Kind.SLURM).values_list("name", "inventory")
    return {
        (engine, name): max(int(found.get("cpus_per_core", 1)), 1)
        for engine, inventory in reported
        for name, found in inventory.items()
    }


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
    told = _of_unfinished_jobs().filter(checkpoint_s__isnull=False)
    return dict(told.order_by("number").values_list("job", "checkpoint_s"))  # type: ignore[arg-type]  # none is null


def _received(live: Iterable[AttemptRow]) -> list[RunInterval]:
    return [(a.job_id, a.gpu_type_id, a.started_at, None) for a in live if a.started_at is not None]


def _received_before(since: datetime) -> list[RunInterval]:
    """Attempts that ended after this moment, of unfinished jobs."""
    ended = _of_unfinished_jobs().filter(ended_at__gt=since, started_at__isnull=False)
    return list(ended.values_list("job_id", "gpu_type_id", "started_at", "ended_at"))  # type: ignore[arg-type]  # as asked


def _ran(now: datetime) -> dict[UUID, Ran]:
    attempts = _of_unfinished_jobs().filter(started_at__isnull=False).order_by()
    times = {"first_at": Min("started_at"), "last_at": Max(Coalesce("ended_at", Value(now)))}
    return {job: Ran(*of_job) for job, *of_job in attempts.values("job").annotate(**times).values_list("job", *times)}


def _of_unfinished_jobs() -> AttemptQuerySet:
    """By an index on the states of jobs; none has those that have not finished."""
    return Attempt.objects.filter(job__in=Job.objects.unfinished())


def _in_arrays(jobs: JobQuerySet) -> dict[UUID, int]:
    """Number of these jobs in each array."""
    return dict(jobs.exclude(array=None).values_list("array").annotate(Count("pk")).order_by())


def newest_events() -> tuple[int, int]:
    """Ids of the newest job event and node event that call for a round."""
    waking = JobEvent.objects.filter(kind__in=JobEvent.WAKING)
    jobs, nodes = (events.aggregate(Max("pk"))["pk__max"] or 0 for events in (waking, NodeEvent.objects.all()))
    return jobs, nodes
