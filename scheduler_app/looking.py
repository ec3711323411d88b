"""What pages and REST ask of the scheduler: rounds opened, jobs explained, logs, nodes with their GPUs."""

from collections.abc import Iterator
from datetime import timedelta
from time import monotonic, sleep
from typing import Any

from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce

from cluster_app.models import Gpu, Node
from engines.protocol import LogChunk, Stream
from estimation.rates import Source
from jobs_app.models import Attempt, Job
from scheduler_app.archive import Archived, unpack
from scheduler_app.fleet import engine_over
from scheduler_app.models import GpuClaim, Round, SchedulerLease

LONGEST_WAIT = timedelta(seconds=5)
LOG_PAUSE_S = 0.2


def nodes_with_gpus() -> QuerySet[Node]:
    """Nodes with `gpus` and `busy_gpus`."""
    busy = (
        GpuClaim.objects.holding()
        .filter(gpu__node=OuterRef("pk"))
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


def latest_round() -> Round | None:
    return Round.objects.filter(result=Round.Result.COMMITTED).defer("archive").first()


def opened(record: Round) -> Archived | None:
    """The round's snapshot and plan; None when they were not kept."""
    blob = Round.objects.filter(pk=record.pk).values_list("archive", flat=True).first()
    return unpack(bytes(blob)) if blob else None


def decisions_of(archived: Archived) -> Iterator[dict[str, Any]]:
    """Per job of the round: what it was given and, for share policies, its share."""
    problem, types, plan = archived.snapshot.problem, archived.snapshot.types, archived.plan
    for row, (job, k) in enumerate(zip(archived.snapshot.jobs, plan.picks.tolist(), strict=True)):
        yield {
            "job": job,
            "gpu_type": types[int(problem.usage[:, k].argmax())] if k >= 0 else None,
            "gpus": int(problem.gpus[k]) if k >= 0 else 0,
            "share": None if plan.decision.shares is None else float(plan.decision.shares[row].sum()),
        }


def rates_used(job: Job, archived: Archived | None) -> list[dict[str, Any]]:
    """The rates that the latest round counted on for this job, the fastest per GPU first."""
    if archived is None or str(job.pk) not in archived.snapshot.jobs:
        return []
    snapshot, shares = archived.snapshot, archived.plan.decision.shares
    row, problem = snapshot.jobs.index(str(job.pk)), snapshot.problem
    used = [
        {
            "gpu_type": snapshot.types[int(problem.usage[:, k].argmax())],
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
    }


def read_log(attempt: Attempt, stream: Stream, *, rank: int, offset: int, wait: timedelta, limit: int) -> LogChunk:
    """The log from an offset; where there is nothing new, wait a little for it."""
    engine = engine_over(attempt.engine, tuple(attempt.nodes))
    until = monotonic() + min(wait, LONGEST_WAIT).total_seconds()
    while True:
        chunk = engine.logs(attempt.pk, stream, rank, offset, limit)
        if chunk.data or chunk.eof or monotonic() >= until:
            return chunk
        sleep(LOG_PAUSE_S)


def scheduler_heartbeat() -> tuple[SchedulerLease | None, Round | None]:
    """Who schedules, and the last round, good or bad."""
    return SchedulerLease.objects.first(), Round.objects.defer("archive").first()
