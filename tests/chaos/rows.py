"""What must hold of a service's rows once all jobs have ended: these functions run beside it, and say what does not."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

from django.db.models import Model, Sum

from accounting_app.models import DailyUsage, GpuTypeUsage, LedgerCoverage, TeamUsage
from jobs_app.models import Attempt, GpuClaim, Job, JobEvent

Kind = JobEvent.Kind
Event = tuple[str, int | None]
"""Kind and number of the attempt."""


def open_claims() -> int:
    return GpuClaim.objects.open().count()


def unaccounted_attempts() -> int:
    """Attempts that ended after the time that the usage ledger covers: the next round adds them."""
    until = LedgerCoverage.objects.values("until")
    return Attempt.objects.filter(started_at__isnull=False, ended_at__gt=until[:1]).count()


def wrong_rows() -> list[str]:
    """Of jobs, their histories, their attempts and the claims of these."""
    return [*_wrong_jobs(), *_wrong_claims()]


def wrong_times() -> list[str]:
    """Of attempts and of the usage ledger, where the clock was never set."""
    ran: dict[UUID, list[Attempt]] = defaultdict(list)
    for attempt in Attempt.objects.exclude(started_at=None).order_by("job", "number"):
        ran[attempt.job_id].append(attempt)
    return [*_at_once(ran), *_wrong_usage([attempt for its in ran.values() for attempt in its])]


def fault_of_history(events: Sequence[Event]) -> str:
    """What of a job's events is not in the table of docs/job-states.md."""
    if not events or events[0][0] != Kind.SUBMITTED:
        return "it does not begin with its submission"
    placed, running, over = 0, None, False
    for kind, attempt in events[1:]:
        if kind == Kind.SUBMITTED or (over and kind not in (Kind.WARNING, Kind.CHANGED)):
            return f"{kind}, attempt {attempt}, though it was submitted or has ended before"
        if kind == Kind.PLACED:
            if attempt != placed + 1:
                return f"attempt {attempt} was placed after attempt {placed}"
            placed = attempt
        if kind == Kind.STARTED:
            if running is not None or attempt is None or attempt > placed:
                return f"attempt {attempt} started while attempt {running} ran, or was not placed"
            running = attempt
        if kind in (Kind.REQUEUED, Kind.FINISHED):
            if running not in (None, attempt):
                return f"attempt {attempt} ended while attempt {running} ran"
            running, over = None, kind == Kind.FINISHED
    return "" if over else "it has not finished"


def _wrong_jobs() -> Iterator[str]:
    histories: dict[UUID, list[Event]] = defaultdict(list)
    for job, kind, attempt in JobEvent.objects.order_by("pk").values_list("job", "kind", "attempt"):
        histories[job].append((kind, attempt))
    for pk, count in Job.objects.values_list("pk", "attempt_count"):
        if fault := fault_of_history(histories[pk]):
            yield f"{pk}: {fault}"
        numbers = list(Attempt.objects.filter(job=pk).order_by("number").values_list("number", flat=True))
        if numbers != list(range(1, count + 1)):
            yield f"{pk} has attempts {numbers}, and counts {count}"


def _wrong_claims() -> Iterator[str]:
    claims: dict[int, list[datetime | None]] = defaultdict(list)
    for pk, released_at in GpuClaim.objects.values_list("attempt", "released_at"):
        claims[pk].append(released_at)
    for attempt in Attempt.objects.all():
        its, name = claims[attempt.pk], f"{attempt.job_id}, attempt {attempt.number}"
        if attempt.state != Attempt.State.ENDED or attempt.gone_at is None:
            yield f"{name} is {attempt.state}, gone at {attempt.gone_at}"
        if len(its) != attempt.gpu_count or None in its:
            yield f"{name} claimed {len(its)} of {attempt.gpu_count} GPUs, released at {its}"


def _at_once(ran: dict[UUID, list[Attempt]]) -> Iterator[str]:
    for job, its in ran.items():
        for before, after in pairwise(its):
            if not (before.ended_at and after.started_at and before.ended_at <= after.started_at):
                yield f"{job}: attempt {after.number} began before attempt {before.number} had ended"


def _wrong_usage(ran: Sequence[Attempt]) -> Iterator[str]:
    """What was run since its start was heard of is the least of the usage; what was claimed is the most."""
    started = JobEvent.objects.filter(kind=Kind.STARTED).values_list("job", "attempt", "at")
    heard_at = {(job, number): at for job, number, at in started}
    heard_of = [attempt for attempt in ran if (attempt.job_id, attempt.number) in heard_at]
    least_s = sum(one.gpu_count * _seconds(heard_at[one.job_id, one.number], one.ended_at) for one in heard_of)
    spans = GpuClaim.objects.exclude(held_from=None).values_list("held_from", "released_at")
    most_s = sum(_seconds(start, end) for start, end in spans)
    days, minutes, types = _total(DailyUsage), _total(TeamUsage), _total(GpuTypeUsage, "busy_gpu_s")
    if not (_same(days, minutes) and _same(days, types)):
        yield f"GPU-seconds of the usage ledger: {days} in days, {minutes} in minutes, {types} by GPU type"
    if not least_s - 1 <= days <= most_s + 1:
        yield f"the usage ledger has {days} GPU-seconds; {least_s} were run at least, {most_s} were claimed"
    if not _same(_total(DailyUsage, "work_gpu_s"), _total(TeamUsage, "work_gpu_s")):
        yield "the usage ledger has other work in days than in minutes"


def _seconds(start: datetime | None, end: datetime | None) -> float:
    return max((end - start).total_seconds(), 0.0) if start and end else 0.0


def _total(model: type[Model], column: str = "gpu_s") -> float:
    sums: dict[str, Any] = model._default_manager.aggregate(total=Sum(column))
    return float(sums["total"] or 0.0)


def _same(first: float, second: float) -> bool:
    return abs(first - second) <= 1e-6 * max(first, second) + 1e-3
