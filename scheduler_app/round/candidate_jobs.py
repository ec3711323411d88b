"""Candidates of a round: the GPUs in service, and the jobs to decide on. The limit of an array holds jobs back here."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from jobs_app.models import Attempt, Job
from scheduler_app.round.inputs import AttemptRow, GpuRow, InputRows, JobRow


@dataclass(frozen=True)
class InService:
    """The GPUs that this round may allocate, and the attempts that hold only such GPUs."""

    gpus: list[GpuRow]
    owner: list[int]
    """Per GPU: the movable attempt that holds it or has a waiting claim on it; 0: none."""
    releasing: list[bool]
    attempt_of: Mapping[UUID, AttemptRow]


def gpus_in_service(rows: InputRows, pinned: frozenset[int]) -> InService:
    """GPUs that may be allocated; an attempt with a GPU out of service keeps all its GPUs, and is not moved."""
    in_service = {node.id for node in rows.nodes if node.in_service}
    live = {gpu.id for gpu in rows.gpus if gpu.healthy and gpu.node_id in in_service} - _used_by_others(rows)
    gpus_of: dict[int, set[int]] = defaultdict(set)
    for gpu_id, attempt_id in {
        **rows.holders,
        **rows.waiting_claims,
    }.items():
        gpus_of[attempt_id].add(gpu_id)
    movable = {
        attempt.id: attempt
        for attempt in rows.attempts.values()
        if attempt.state != Attempt.State.STOPPING
        and attempt.id not in pinned
        and gpus_of[attempt.id]
        and gpus_of[attempt.id] <= live
    }
    gpus, owners, releasing = [], [], []
    for gpu in rows.gpus:
        owner = rows.waiting_claims.get(gpu.id) or rows.holders.get(gpu.id) or 0
        stopping = owner in rows.attempts and rows.attempts[owner].state == Attempt.State.STOPPING
        if gpu.id in live and (not owner or stopping or owner in movable):
            gpus.append(gpu)
            owners.append(0 if stopping else owner)
            releasing.append(stopping)
    return InService(gpus, owners, releasing, {attempt.job_id: attempt for attempt in movable.values()})


def _used_by_others(rows: InputRows) -> set[int]:
    """Unclaimed GPUs per node to leave out, as many as jobs outside Motley use.

    Which devices others use is the site's affair: on such nodes a GPU is a seat, not a device.
    """
    left = {node.id: node.foreign_gpus for node in rows.nodes if node.foreign_gpus}
    taken = set()
    for gpu in reversed(rows.gpus) if left else ():
        if left.get(gpu.node_id, 0) and gpu.id not in rows.holders and gpu.id not in rows.waiting_claims:
            left[gpu.node_id] -= 1
            taken.add(gpu.id)
    return taken


def queue_of(rows: InputRows, service: InService) -> tuple[list[JobRow], list[JobRow]]:
    """Jobs to decide on, and array members held back by their array's `at_a_time` limit."""
    queue, throttled, busy = [], [], Counter(rows.busy_in_arrays)
    for job in rows.jobs:
        if job.state != Job.State.QUEUED:
            queue += [job] if job.id in service.attempt_of else []
        elif job.array_id and job.at_a_time and busy[job.array_id] >= job.at_a_time:
            throttled.append(job)
        else:
            queue.append(job)
            busy.update([job.array_id] if job.array_id else [])
    return queue, throttled
