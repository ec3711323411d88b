"""What pages and REST ask of the scheduler: rounds opened, jobs explained, logs, nodes with their GPUs."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from time import monotonic, sleep
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count, Exists, F, OuterRef, Prefetch, QuerySet, Subquery
from django.db.models.functions import Coalesce

from cluster_app.models import Gpu, Node
from engines.protocol import LogChunk, Stream
from estimation.rates import Source
from jobs_app.models import Attempt, Job
from jobs_app.models.job import JobQuerySet
from scheduler_app.archive import Archived, unpack
from scheduler_app.explaining import Words, reasons_of, rivals_in, words_of_round
from scheduler_app.fleet import engine_over
from scheduler_app.models import GpuClaim, Round
from scheduler_app.naming import names_of

LONGEST_WAIT = timedelta(seconds=5)
LOG_PAUSE_S = 0.2


def nodes_with_gpus() -> QuerySet[Node]:
    """Nodes with `gpus` and `busy_gpus`."""
    busy = (
        GpuClaim.objects.holding()
        .filter(gpu__node=OuterRef("pk"), gpu__present=True)
        .order_by()
        .values("gpu__node")
        .annotate(count=Count("pk"))
        .values("count")
    )
    return Node.objects.with_gpu_counts().select_related("gpu_type").annotate(busy_gpus=Coalesce(Subquery(busy), 0))


def gpus_with_holders() -> list[tuple[Gpu, Attempt | None]]:
    """Every GPU with the attempt that has it, in the order of nodes."""
    claims = GpuClaim.objects.holding().select_related("attempt__job__team")
    holder = {claim.gpu_id: claim.attempt for claim in claims}
    gpus = (
        Gpu.objects.present().select_related("node__gpu_type").order_by("node__gpu_type__name", "node__name", "index")
    )
    return [(gpu, holder.get(gpu.pk)) for gpu in gpus]


def job_rows(user: User) -> JobQuerySet:
    """The jobs that the person may see, each with its latest attempt alone: as many queries for one as for many."""
    latest = Attempt.objects.filter(number=F("job__attempt_count")).select_related("gpu_type")
    rows = Job.objects.visible_to(user).select_related("team", "owner")
    return rows.prefetch_related(Prefetch("attempts", latest))


def emulated_nodes() -> set[str]:
    return set(Node.objects.filter(emulated=True).values_list("name", flat=True))


def condition_of(gpu: Gpu, *, busy: bool) -> str:
    """unhealthy, draining, busy or idle: what matters most about a GPU."""
    return _condition(gpu.healthy, gpu.node.health, gpu.node.state, busy)


def _condition(healthy: bool, health: str, state: str, busy: bool) -> str:
    if not healthy or health != Node.Health.HEALTHY:
        return "unhealthy"
    if state != Node.State.READY:
        return "draining"
    return "busy" if busy else "idle"


@dataclass(frozen=True)
class GpuCounts:
    """How many GPUs of a type are in which condition."""

    gpu_type: str
    total: int
    busy: int
    idle: int
    draining: int
    unhealthy: int


def gpu_counts() -> list[GpuCounts]:
    """Per GPU type, by name; counted by the database."""
    busy = Exists(GpuClaim.objects.holding().filter(gpu=OuterRef("pk")))
    columns = ("node__gpu_type__name", "healthy", "node__health", "node__state", "is_busy")
    alike = Gpu.objects.present().annotate(is_busy=busy).order_by().values_list(*columns).annotate(Count("pk"))
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for name, *condition, count in alike:
        counts[name][_condition(*condition)] += count
    conditions = ("busy", "idle", "draining", "unhealthy")
    return [
        GpuCounts(name, n.total(), *(n[condition] for condition in conditions)) for name, n in sorted(counts.items())
    ]


@dataclass(frozen=True)
class GpuCell:
    """One GPU: its condition, and the job on it where the person may see that."""

    gpu: Gpu
    condition: str
    job: Job | None
    hidden: bool
    """Somebody else's job is on it."""


@dataclass(frozen=True)
class NodeCells:
    node: Node
    cells: list[GpuCell]


def gpus_by_node(user: User) -> list[NodeCells]:
    """Every node with its GPUs, by type and name."""
    teams = None if user.is_staff else set(user.teams.values_list("pk", flat=True))
    return [
        NodeCells(node, [_cell(gpu, attempt, teams) for gpu, attempt in of_node])
        for node, of_node in groupby(gpus_with_holders(), key=lambda pair: pair[0].node)
    ]


def _cell(gpu: Gpu, attempt: Attempt | None, teams: set[int] | None) -> GpuCell:
    seen = attempt is not None and (teams is None or attempt.job.team_id in teams)
    return GpuCell(
        gpu=gpu,
        condition=condition_of(gpu, busy=attempt is not None),
        job=attempt.job if attempt and seen else None,
        hidden=attempt is not None and not seen,
    )


def latest_round() -> Round | None:
    return Round.objects.filter(result=Round.Result.COMMITTED).defer("archive").first()


def opened(record: Round) -> Archived | None:
    """The round's snapshot and plan; None when they were not kept."""
    blob = Round.objects.filter(pk=record.pk).values_list("archive", flat=True).first()
    return unpack(bytes(blob)) if blob else None


def reasons_in(archived: Archived) -> dict[str, list[Words]]:
    """For each job that the round left waiting, every reason, as it was told then."""
    snapshot = archived.snapshot
    if not snapshot.jobs:
        return {}
    left = reasons_of(snapshot, archived.plan)
    return words_of_round(snapshot, left, names_of(rivals_in(snapshot, left)))


def decisions_of(archived: Archived) -> Iterator[dict[str, Any]]:
    """Per job of the round: what it was given, for share policies its share, and why it waits if it does."""
    problem, plan, reasons = archived.snapshot.problem, archived.plan, reasons_in(archived)
    for row, (job, k) in enumerate(zip(archived.snapshot.jobs, plan.picks.tolist(), strict=True)):
        yield {
            "job": job,
            "gpu_type": archived.snapshot.type_of(k) if k >= 0 else None,
            "gpus": int(problem.gpus[k]) if k >= 0 else 0,
            "share": None if plan.decision.shares is None else float(plan.decision.shares[row].sum()),
            "reasons": reasons.get(job, []),
        }


def rates_used(job: Job, archived: Archived | None) -> list[dict[str, Any]]:
    """The rates that the latest round counted on for this job, the fastest per GPU first."""
    if archived is None or str(job.pk) not in archived.snapshot.jobs:
        return []
    snapshot, shares = archived.snapshot, archived.plan.decision.shares
    row, problem = snapshot.jobs.index(str(job.pk)), snapshot.problem
    used = [
        {
            "gpu_type": snapshot.type_of(k),
            "gpus": int(problem.gpus[k]),
            "nodes": int(problem.nodes[k]),
            "rate": float(problem.rate[row, k]),
            "source": Source(int(snapshot.source[row, k])).name.lower(),
            "share": None if shares is None else float(shares[row, k]),
        }
        for k in range(problem.rate.shape[1])
        if problem.rate[row, k] > 0
    ]
    return sorted(used, key=lambda rate: -rate["rate"] / rate["gpus"])


def explain_job(job: Job) -> dict[str, Any]:
    """Why the job is where it is, and how fast it would be on each GPU type."""
    record = latest_round()
    return {
        "state": job.state,
        "reason": job.reason,
        "message": job.message,
        "reasons": job.reasons,
        "rates_used": rates_used(job, opened(record)) if record else [],
        "round": record.number if record else None,
        "would_start": None,
    }


def read_log(attempt: Attempt, stream: Stream, *, rank: int, offset: int, wait: timedelta, limit: int) -> LogChunk:
    """The log from an offset; where there is nothing new, wait a little for it."""
    engine = engine_over(attempt.engine)  # whatever its nodes: an engine per gang would be kept for ever
    until = monotonic() + min(wait, LONGEST_WAIT).total_seconds()
    while True:
        chunk = engine.logs(attempt.pk, stream, rank, offset, limit)
        if chunk.data or chunk.eof or monotonic() >= until:
            return chunk
        sleep(LOG_PAUSE_S)


def log_tail(attempt: Attempt, stream: Stream, *, rank: int, limit: int) -> LogChunk:
    """The end of the log so far."""
    now = timedelta()
    size = read_log(attempt, stream, rank=rank, offset=0, wait=now, limit=1).size
    return read_log(attempt, stream, rank=rank, offset=max(0, size - limit), wait=now, limit=limit)
