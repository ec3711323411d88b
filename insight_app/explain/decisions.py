"""Decisions of a round per job, read from its archive, and the explanation of one job's state."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from allocation.policies import prices_in_hours
from estimation.rate_evidence import limits
from estimation.rates import Source
from insight_app.explain.attempt_explanations import explain_cpu_memory
from insight_app.explain.outlooks import checkpoint_outlook, deadline_outlook, placement_odds
from insight_app.explain.queue_outlook import queue_outlook, waking_nodes
from insight_app.explain.rate_comparison import explain_measurement
from insight_app.explain.remaining_work import remaining_work
from insight_app.explain.restart_cost import restart_cost
from insight_app.gpu_prices.wording import words_of_holding
from jobs_app.models import Attempt, Job
from jobs_app.models.attempt import ROUGH, told_rate
from jobs_app.models.job import JobQuerySet
from scheduler_app.models import Round
from scheduler_app.round.archive import Archived, archive_of
from scheduler_app.round.reason_texts import ReasonText, names_of, reason_texts, reasons_of, rivals_named
from scheduler_app.round.snapshot import Snapshot

JOBS_PER_QUERY = 1000
UNKNOWN_ESTIMATE = dict.fromkeys(("rate", "low", "high", "spread"))


def rows_seen(archived: Archived, jobs: JobQuerySet, rows: Sequence[int]) -> Iterator[int]:
    """The rows whose job is among these jobs, looked up in batches."""
    ids = archived.snapshot.jobs
    for first in range(0, len(rows), JOBS_PER_QUERY):
        some = rows[first : first + JOBS_PER_QUERY]
        seen = {str(pk) for pk in jobs.filter(pk__in=[ids[row] for row in some]).values_list("pk", flat=True)}
        yield from (row for row in some if ids[row] in seen)


def decisions_of(archived: Archived, rows: Sequence[int]) -> list[dict[str, Any]]:
    """For each of these rows its job's allocation in the round, its share of time under share policies, and its
    pending reasons."""
    problem, plan, reasons = archived.snapshot.problem, archived.plan, _reasons_in(archived, rows)
    configurations = [(row, int(plan.assignment[row])) for row in rows]
    return [
        {
            "job": archived.snapshot.jobs[row],
            "gpu_type": archived.snapshot.type_of(k) if k >= 0 else None,
            "gpus": int(problem.gpus[k]) if k >= 0 else 0,
            "share": None if plan.decision.shares is None else float(plan.decision.shares[row].sum()),
            "reasons": reasons.get(archived.snapshot.jobs[row], []),
        }
        for row, k in configurations
    ]


def _reasons_in(archived: Archived, rows: Sequence[int]) -> dict[str, list[ReasonText]]:
    """Pending reasons by job id, of the rows that the round left waiting."""
    snapshot = archived.snapshot
    if not rows:
        return {}
    left = reasons_of(snapshot, archived.plan, rows)
    return reason_texts(snapshot, left, names_of(rivals_named(snapshot, left)))


def rates_used(job: Job, archived: Archived | None) -> list[dict[str, Any]]:
    """Throughputs that the round used for this job, as users are told them, the fastest per GPU first."""
    if archived is None or str(job.pk) not in archived.snapshot.jobs:
        return []
    snapshot, shares = archived.snapshot, archived.plan.decision.shares
    row, problem = snapshot.jobs.index(str(job.pk)), snapshot.problem
    per_gpu = problem.rate[row] / problem.gpus
    able = [k for k in np.argsort(-per_gpu, kind="stable").tolist() if per_gpu[k] > 0]
    return [
        {
            "gpu_type": snapshot.type_of(k),
            "gpus": int(problem.gpus[k]),
            "nodes": int(problem.nodes[k]),
            **_estimate_of(snapshot, row, k),
            "relative": float(per_gpu[k] / per_gpu[able[-1]]),
            "share": None if shares is None else float(shares[row, k]),
        }
        for k in able
    ]


def _estimate_of(snapshot: Snapshot, row: int, k: int) -> dict[str, Any]:
    """Estimate of a rate: its mean, its 80 % interval, its source and the number of observations."""
    evidence, source = snapshot.evidence, Source(int(snapshot.source[row, k]))
    rate, spread = float(snapshot.problem.rate[row, k]), float(evidence.spread[row, k])
    name, runs = source.name.lower(), int(evidence.runs[row, k])
    low, high = (told_rate(limit, name if runs else ROUGH[0]) for limit in limits(rate, spread))
    if source is Source.ASSUMED:
        return UNKNOWN_ESTIMATE | {"source": name, "runs": runs}
    return {"rate": told_rate(rate, name), "low": low, "high": high, "spread": spread, "source": name, "runs": runs}


def others_wait(attempt: Attempt | None, record: Round | None) -> str:
    """What the GPUs that the job holds cost others by the prices of the round; empty: none, or it is not known."""
    if attempt is None or record is None or not prices_in_hours(record.policy):
        return ""
    gpu_type = attempt.gpu_type.name
    held = f"{attempt.gpu_count} {gpu_type.upper()}"
    words = words_of_holding(attempt.gpu_count, record.prices.get(gpu_type, 0.0), held=held)
    return f"{words}, by the prices of round {record.number}." if words else ""


def explain_job(job: Job, now: datetime) -> dict[str, Any]:
    """Explain the job's state: remaining running time, outlook of its placement, and the rates of the last round."""
    record, attempts = Round.objects.latest_committed(), list(job.attempts.select_related("gpu_type"))
    attempt = job.attempts.live().select_related("gpu_type").order_by("-number").first()
    return {
        "state": job.state,
        "reason": job.reason,
        "message": job.message,
        "reasons": job.reasons,
        "outlook": queue_outlook(job),
        "deadline": deadline_outlook(job, now),
        "waking": waking_nodes(job),
        "remaining": remaining_work(job, attempts, now),
        "placement": placement_odds(job, attempts, now),
        "checkpoints": checkpoint_outlook(job, attempts, now),
        "rates_used": rates_used(job, archive_of(record)) if record else [],
        "restart": restart_cost(job, attempts),
        "cpu_memory": explain_cpu_memory(attempt),
        "measurement": explain_measurement(attempt),
        "others_wait": others_wait(attempt, record),
        "round": record.number if record else None,
        "would_start": None,
    }
