"""Commit a plan in one short transaction, with optimistic concurrency: its preconditions are read again first."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from django.db import transaction
from django.db.models import F, Q

from accounting_app.energy.node_use import record_node_use
from accounting_app.fairness.quota_ledger import QuotaUse, accrue_quotas
from accounting_app.fairness.usage_ledger import accrue
from allocation.plan_round import Plan
from allocation.problem import Problem
from cluster_app.models import MOST_GPUS_PER_NODE, Gpu, in_service
from database.bulk_insert import insert_many
from database.bulk_update import rewrite
from estimation.batch_tuning import Tuned
from estimation.scaling import Source
from jobs_app.lifecycle.attempts import preempt
from jobs_app.models import Attempt, GpuClaim, Job, JobEvent, Reason
from scheduler_app.models import Round
from scheduler_app.round.cpu_memory import AS_JOBS_ASKED, CpuMemory, CpuMemoryShares
from scheduler_app.round.holders import JobName
from scheduler_app.round.inputs.job_row import JobRow
from scheduler_app.round.lease import check_fencing_token, engines_heard_at
from scheduler_app.round.reason_texts import MOST_NAMED, names_of
from scheduler_app.round.snapshot import Snapshot

ReasonsByJob = Mapping[str, Sequence[Mapping[str, Any]]]
"""Job → its pending reasons, the headline first."""
REASONS_PER_TRANSACTION = 1000
PORTS = range(29_600, 49_600)
"""Of the rendezvous of gangs."""


class Requested(NamedTuple):
    """What a job requests, as far as it may be changed while it waits."""

    gpus_min: int
    gpus_max: int
    gpu_types: list[str]
    gpu_memory_mib: int
    cpus_per_gpu: int
    memory_per_gpu_mib: int

    @classmethod
    def of(cls, job: JobRow) -> "Requested":
        return cls._make(getattr(job, name) for name in cls._fields)


@dataclass(frozen=True)
class Start:
    """A row of the snapshot and the GPUs that it starts on, in rank order."""

    row: int
    gpus: tuple[int, ...]


@dataclass(frozen=True)
class Changes:
    """Difference of a plan from the current allocation: rows that start, rows that stop; rows in both move."""

    starts: tuple[Start, ...] = ()
    stops: tuple[int, ...] = ()
    takers: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Row that stops → the rows that receive its GPUs, or what it used of a quota."""

    @cached_property
    def moves(self) -> set[int]:
        return {start.row for start in self.starts} & set(self.stops)


def changes_of(snapshot: Snapshot, plan: Plan) -> Changes:
    """Compare the current holder of each GPU with its planned owner. Pure."""
    before, after = _gpus_by_row(snapshot.inventory.holder), _gpus_by_row(plan.owner)
    changed = [row for row in sorted(before.keys() | after.keys()) if before.get(row) != after.get(row)]
    starts = tuple(Start(row, _ranked(snapshot, after[row])) for row in changed if row in after)
    begun = [start.row for start in starts]
    takers = {
        row: tuple(sorted({int(taker) for taker in plan.owner[list(before[row])] if taker not in (-1, row)}))
        or (() if row in after else _in_its_quota(snapshot, plan, row, begun))
        for row in changed
        if row in before
    }
    return Changes(starts, tuple(takers), takers)


def _in_its_quota(snapshot: Snapshot, plan: Plan, row: int, begun: Sequence[int]) -> tuple[int, ...]:
    """Rows that start while a row stops whose GPUs stay free: it would keep them if a quota allowed it."""
    quotas, usage = snapshot.quotas, snapshot.problem.usage
    groups = {group for group in quotas.group[row].tolist() if group >= 0}
    types = usage[:, snapshot.problem.held[row]] * (quotas.by_type is not None)
    return tuple(
        taker
        for taker in begun
        if groups.intersection(quotas.group[taker].tolist()) or usage[:, plan.assignment[taker]] @ types
    )


def _gpus_by_row(owner: Iterable[int]) -> dict[int, tuple[int, ...]]:
    gpus: dict[int, list[int]] = defaultdict(list)
    for gpu, row in enumerate(np.asarray(owner).tolist()):
        if row >= 0:
            gpus[row].append(gpu)
    return {row: tuple(of_row) for row, of_row in gpus.items()}


def _ranked(snapshot: Snapshot, gpus: Sequence[int]) -> tuple[int, ...]:
    """Primary keys in rank order; the node with most of the gang's GPUs comes first: it hosts the rendezvous."""
    node = snapshot.inventory.gpu_node
    count = {n: sum(node[gpu] == n for gpu in gpus) for n in node[list(gpus)].tolist()}
    return tuple(
        snapshot.gpus[gpu] for gpu in sorted(gpus, key=lambda gpu: (-count[int(node[gpu])], int(node[gpu]), gpu))
    )


@transaction.atomic
def commit_round(
    record_of_round: Round,
    snapshot: Snapshot,
    plan: Plan,
    *,
    holder: str,
    now: datetime,
    shares: CpuMemoryShares = AS_JOBS_ASKED,
    measuring: Collection[int] = (),
    quotas: Sequence[QuotaUse] = (),
    requests: Mapping[UUID, JobRow] | None = None,
) -> None:
    """Write the round, its preemptions and its starts; rows that are `measuring` start to measure their rates.

    `requests`: the jobs as the snapshot has them. One whose request was changed since does not start in this round.
    `LeaseLost` if the fencing token is no longer valid.
    """
    check_fencing_token(holder, record_of_round.number)
    changes = changes_of(snapshot, plan)
    heard = engines_heard_at(now)
    accrue_quotas(quotas, heard)
    accrue(heard)
    preconditions = Preconditions(
        _still_wanted(snapshot, changes, shares.changed, now, requests or {}), _gpus_in_service(changes.starts)
    )
    startable = {start.row for start in changes.starts if preconditions.hold_for(start)}
    stopped = _stop(snapshot, plan, changes, startable)
    chosen = [s for s in changes.starts if s.row in startable and (s.row not in changes.moves or s.row in stopped)]
    beside = {start.row: {"measures": start.row in measuring, **shares.of(start.row)._asdict()} for start in chosen}
    _start(snapshot, plan, chosen, preconditions, beside, number=record_of_round.number, now=now)
    _change_shares(shares.changed_with({preconditions.gpus[gpu].node for start in chosen for gpu in start.gpus}))
    record_node_use(now)
    started = {start.row for start in chosen}
    record_of_round.starts = len(started - stopped)
    record_of_round.stops = len(stopped - started)
    record_of_round.moves = len(started & stopped)
    record_of_round.save(force_insert=True)


class GpuInService(NamedTuple):
    """A GPU that was in service when the plan was committed."""

    node: str
    gpu_type: int
    engine: str
    port: int
    """Of the rendezvous of an attempt of which this is the first GPU."""


def rendezvous_port(node: int, index: int) -> int:
    """Port for the GPU with this index on the node with this key.

    No two GPUs of a node have the same, nor of 312 nodes that were added one after another: emulated ones are on one
    machine. As a GPU belongs to one attempt at a time, so does its port.
    """
    return PORTS[(node * MOST_GPUS_PER_NODE + index) % len(PORTS)]


@dataclass(frozen=True)
class Preconditions:
    """What the starts of a plan depend on, read again at commit (optimistic concurrency)."""

    attempt_counts: Mapping[int, int]
    """Row whose job may still start → the number of its attempts so far."""
    gpus: Mapping[int, GpuInService]
    """GPUs of the plan's starts that are still in service."""

    def hold_for(self, start: Start) -> bool:
        """Also that all of its GPUs belong to one engine: none can start a gang over several."""
        if start.row not in self.attempt_counts or not self.gpus.keys() >= set(start.gpus):
            return False
        return len({self.gpus[gpu].engine for gpu in start.gpus}) == 1


def _still_wanted(
    snapshot: Snapshot, changes: Changes, changed: Iterable[UUID], now: datetime, requests: Mapping[UUID, JobRow]
) -> dict[int, int]:
    """Rows to start whose job is still queued and may begin, or still running if it is to move, with its attempts.

    All jobs of which the commit writes attempts are locked, those whose share changes too, before any attempt.
    """
    ids = {row: UUID(snapshot.jobs[row]) for row in {*changes.stops, *(start.row for start in changes.starts)}}
    jobs = Job.objects.select_for_update().filter(pk__in={*ids.values(), *changed}).order_by("pk")
    rows = jobs.values_list("pk", "state", "held", "begin_time", "attempt_count", *Requested._fields)
    known = {
        (pk, state): count
        for pk, state, held, begin_time, count, *request in rows
        if not (held or (begin_time or now) > now) and _is_unchanged(requests.get(pk), request)
    }
    expected = {row: (pk, Job.State.RUNNING if row in changes.moves else Job.State.QUEUED) for row, pk in ids.items()}
    return {row: known[job] for row, job in expected.items() if job in known}


def _is_unchanged(decided: JobRow | None, request: Sequence[Any]) -> bool:
    """Whether the job requests what the round decided on; a round that names no requests decided on none."""
    return decided is None or Requested.of(decided) == tuple(request)


def _gpus_in_service(starts: Iterable[Start]) -> dict[int, GpuInService]:
    """The GPUs to start on that are still in service."""
    gpus = Gpu.objects.filter(pk__in={gpu for start in starts for gpu in start.gpus}, present=True, healthy=True)
    columns = ("pk", "node__name", "node__gpu_type_id", "node__engine__name", "node_id", "index")
    rows = gpus.filter(in_service("node__")).values_list(*columns)
    return {
        pk: GpuInService(name, gpu_type, engine, rendezvous_port(node, index))
        for pk, name, gpu_type, engine, node, index in rows
    }


def _stop(snapshot: Snapshot, plan: Plan, changes: Changes, startable: set[int]) -> set[int]:
    """Preempt the rows whose GPUs go to a row that can still start; returns the rows that were stopped."""
    useful = list(_useful_stops(changes, startable))
    names = names_of({snapshot.jobs[taker] for _, takers, _ in useful for taker in takers})
    notes = {
        snapshot.attempts[row]: _preemption_note(
            snapshot, plan, row, [names[snapshot.jobs[t]] for t in takers], moved=moved
        )
        for row, takers, moved in useful
    }
    told = preempt(notes, moved={snapshot.attempts[row] for row, _, moved in useful if moved})
    return {row for row in changes.stops if snapshot.attempts[row] in told}


def _useful_stops(changes: Changes, startable: set[int]) -> Iterator[tuple[int, list[int], bool]]:
    """Rows to stop, each with the startable rows that receive its GPUs, and whether it moves."""
    for row in changes.stops:
        takers = [taker for taker in changes.takers[row] if taker in startable]
        if takers or row in startable:
            yield row, takers, row in startable


def _preemption_note(snapshot: Snapshot, plan: Plan, row: int, takers: Iterable[JobName], *, moved: bool) -> str:
    """The note of a preemption: where the job moves, if it does, and which jobs receive its GPUs."""
    team, k = int(snapshot.problem.team[row]), int(plan.assignment[row])
    parts = [f"to {snapshot.problem.gpus[k]} x {snapshot.type_of(k).upper()}"] if moved else []
    made_room = ", ".join(dict.fromkeys(taker.shown_to(team) for taker in takers))
    return "; ".join([*parts, *([f"made room for {made_room}"] if made_room else [])])[:500]


def _start(
    snapshot: Snapshot,
    plan: Plan,
    chosen: Sequence[Start],
    preconditions: Preconditions,
    beside: Mapping[int, Mapping[str, Any]],
    *,
    number: int,
    now: datetime,
) -> None:
    """Create attempts with waiting claims; dispatch promotes the claims whose GPUs have no holder.

    `beside`: further columns of the attempt of each row.
    """
    rows = [
        _attempt_row(
            snapshot,
            plan,
            start,
            [preconditions.gpus[pk] for pk in start.gpus],
            number=preconditions.attempt_counts[start.row] + 1,
        )
        | {"round_number": number, "claimed_at": now}
        | dict(beside[start.row])
        for start in chosen
    ]
    insert_many(Attempt, rows)
    placed = Attempt.objects.filter(job__in=[row["job_id"] for row in rows], round_number=number)
    attempt_of = dict(placed.values_list("job", "pk"))
    claims = [
        {"gpu_id": gpu, "attempt_id": attempt_of[row["job_id"]]}
        for start, row in zip(chosen, rows, strict=True)
        for gpu in start.gpus
    ]
    insert_many(GpuClaim, claims)
    _mark_starting(rows, _holders_text(snapshot, chosen))


def _change_shares(due: Mapping[int, CpuMemory]) -> None:
    """Record new CPU and memory shares of running attempts, for their engines to be told."""
    live = Attempt.objects.live().select_for_update().filter(pk__in=due).order_by("pk").values_list("pk", flat=True)
    rewrite(Attempt, (*CpuMemory._fields, "share_due"), {pk: (*due[pk], True) for pk in live})


def _holders_text(snapshot: Snapshot, starts: Sequence[Start]) -> dict[UUID, str]:
    """For each job that starts once others have left its GPUs, which jobs these are."""
    held = GpuClaim.objects.holding().filter(gpu__in=[gpu for start in starts for gpu in start.gpus])
    holder = {gpu: str(job) for gpu, job in held.values_list("gpu", "attempt__job")}
    names = names_of(set(holder.values())) if holder else {}
    holders = {start.row: dict.fromkeys(holder[gpu] for gpu in start.gpus if gpu in holder) for start in starts}
    return {
        UUID(snapshot.jobs[row]): _release_text(names[job].shown_to(int(snapshot.problem.team[row])) for job in jobs)
        for row, jobs in holders.items()
        if jobs
    }


def _release_text(leaving: Iterable[str]) -> str:
    named = list(dict.fromkeys(leaving))
    more = f" and {len(named) - MOST_NAMED} more" * (len(named) > MOST_NAMED)
    return f"waiting for {', '.join(named[:MOST_NAMED])}{more} to release its GPUs"[:500]


def _attempt_row(
    snapshot: Snapshot, plan: Plan, start: Start, located: Sequence[GpuInService], *, number: int
) -> dict[str, Any]:
    problem, row = snapshot.problem, start.row
    k = int(plan.assignment[row])
    rate, gpus = float(problem.rate[row, k]), int(problem.gpus[k])
    average = float(problem.base_rate[row] / problem.base_gpus[row])
    tuned = snapshot.tuned.get(row)
    return {
        "job_id": UUID(snapshot.jobs[row]),
        "number": number,
        "gpu_type_id": located[0].gpu_type,
        "gpu_count": len(start.gpus),
        "nodes": list(dict.fromkeys(gpu.node for gpu in located)),
        "engine": located[0].engine,
        "master_port": located[0].port,
        "rate": rate,
        "rate_source": Source(int(snapshot.source[row, k])).name.lower(),
        "relative_speed": rate / gpus / average,
        "batch_size": int(tuned.batch[k]) if tuned else 0,
        "micro_batches": int(tuned.passes[k]) + 1 if tuned else 1,
        "step_worth": float(tuned.gain[k]) if tuned else 1.0,
        "batch_choices": _batch_choices(problem, row, k, tuned),
    }


def _batch_choices(problem: Problem, row: int, k: int, tuned: Tuned | None) -> list[tuple[int, int, float]]:
    """Batches among which the job may choose while it runs, as (samples, micro-batches, samples/s).

    None of a model that takes several GPUs: its noise is not measured.
    """
    if tuned is None or (problem.gpus_per_replica[row] != 1).any():
        return []
    choices = tuned.choices(k, nodes=int(problem.nodes[k]), gpus=int(problem.gpus[k]))
    return [(one.batch, one.passes + 1, float(f"{one.samples_per_s:.4g}")) for one in choices]


def _mark_starting(attempts: Sequence[Mapping[str, Any]], waiting: Mapping[UUID, str]) -> None:
    """Set queued jobs to starting (jobs that move have yet to stop), and count the new attempt of each.

    `waiting`: the message of each job of which another one has yet to leave a GPU.
    """
    jobs, once_more = Job.objects.filter(pk__in=[attempt["job_id"] for attempt in attempts]), F("attempt_count") + 1
    jobs.exclude(state=Job.State.QUEUED).update(attempt_count=once_more)
    waits, queued = Q(pk__in=waiting), jobs.filter(state=Job.State.QUEUED)
    for reason, of_it in ((Reason.AWAITING_RELEASE, waits), (Reason.STARTING, ~waits)):
        queued.filter(of_it).update(
            state=Job.State.STARTING, reason=reason, message=reason.label, reasons=[], attempt_count=once_more
        )
    told = Job.objects.filter(pk__in=waiting, reason=Reason.AWAITING_RELEASE).values_list("pk", flat=True)
    rewrite(Job, ("message",), {pk: (waiting[pk],) for pk in told})
    placed = [
        {
            "job_id": attempt["job_id"],
            "kind": JobEvent.Kind.PLACED,
            "attempt": attempt["number"],
            "message": _placement_text(attempt)[:500],
        }
        for attempt in attempts
    ]
    insert_many(JobEvent, placed)


def _placement_text(attempt: Mapping[str, Any]) -> str:
    gpus = f"{attempt['gpu_count']} GPU{'' if attempt['gpu_count'] == 1 else 's'}"
    aim = ", to measure its rate there" if attempt["measures"] else ""
    return f"{gpus} on {', '.join(attempt['nodes'])}, by round {attempt['round_number']}{aim}"


def store_pending_reasons(reasons: ReasonsByJob) -> None:
    """Store the pending reasons that changed; after the commit, in transactions of their own.

    There may be thousands, and no decision depends on them: after an interruption the next round stores the rest.
    """
    waiting = Job.objects.filter(state=Job.State.QUEUED, held=False)
    known = {str(pk): old for pk, old in waiting.values_list("pk", "reasons")}
    news = [pk for pk, fresh in reasons.items() if known.get(pk) != fresh]
    for start in range(0, len(news), REASONS_PER_TRANSACTION):
        _store_reasons({pk: reasons[pk] for pk in news[start : start + REASONS_PER_TRANSACTION]})


@transaction.atomic
def _store_reasons(reasons: ReasonsByJob) -> None:
    """Store the reasons of jobs that are still queued; the first is the headline."""
    ids = [UUID(pk) for pk in reasons]
    waiting = Job.objects.select_for_update().filter(pk__in=ids, state=Job.State.QUEUED, held=False)
    rows = {pk: _reason_columns(reasons[str(pk)]) for pk in waiting.order_by("pk").values_list("pk", flat=True)}
    rewrite(Job, ("reasons", "reason", "message"), rows)


def _reason_columns(reasons: Sequence[Mapping[str, Any]]) -> tuple[Sequence[Mapping[str, Any]], str, str]:
    return reasons, reasons[0]["code"], reasons[0]["detail"][:500]
