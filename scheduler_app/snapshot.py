"""The cluster and the queue at one moment, as arrays and the primary keys behind them. Built without a query."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import compress
from uuid import UUID

import numpy as np

from allocation.arrays import Bools, Floats, Ints
from allocation.configurations import Configurations, gang_sizes
from allocation.floor import Floor
from allocation.limits import Limits
from allocation.problem import Problem, normaliser, runnable
from estimation.knowledge import GpuSpec, Knowledge, Measurement
from estimation.rates import Machines, estimate_rates, valid_configurations
from jobs_app.models import Attempt, Job
from scheduler_app.reading import AttemptRow, GpuRow, JobRow, Rows

NOT_YET_RUNNING = (Attempt.State.CLAIMED, Attempt.State.LAUNCHING)


@dataclass(frozen=True)
class Timing:
    """What the policy's setting says of time; `shares_since`: time received counts from here."""

    now: datetime
    round_s: float
    min_run_s: float
    shares_since: datetime


@dataclass(frozen=True)
class Snapshot:
    """One round's input: m jobs (rows), n types, K configurations, G GPUs on N nodes in service."""

    jobs: tuple[str, ...]
    attempts: tuple[int, ...]
    """The attempt that each row holds GPUs by; 0: it waits."""
    types: tuple[str, ...]
    nodes: tuple[str, ...]
    gpus: tuple[int, ...]
    round_s: float
    problem: Problem
    floor: Floor
    limits: Limits
    source: Ints
    """Where each rate (m, K) comes from: `estimation.rates.Source`."""


@dataclass(frozen=True)
class LeftOut:
    """Queued jobs that are no rows, and why."""

    cannot_run: tuple[JobRow, ...] = ()
    """No node in service could run them."""
    throttled: tuple[JobRow, ...] = ()
    """As many of their array as may run at a time do."""


@dataclass(frozen=True)
class _InService:
    """The GPUs that this round may hand out, and the attempts whose GPUs are all among them."""

    gpus: list[GpuRow]
    owner: list[int]
    """Per GPU: the attempt that holds or awaits it and is a row's; 0: nobody."""
    releasing: list[bool]
    attempt_of: Mapping[UUID, AttemptRow]


def build_snapshot(
    rows: Rows, timing: Timing, busy_in_arrays: Mapping[UUID, int], *, pinned: frozenset[int] = frozenset()
) -> tuple[Snapshot, LeftOut]:
    """Arrays from rows. Jobs that can run nowhere are left out, so that they cannot stop the round.

    Attempts that are `pinned` keep their GPUs, and neither they nor those take part.
    """
    service = _in_service(rows, pinned)
    queue, throttled = _queue(rows, service, busy_in_arrays)
    offered = _configurations(rows, service, queue)
    capacity = _capacity(rows, service)
    everybody = _bids(rows, service, offered, queue, timing)
    can_run = _can_run(everybody.rate, offered, capacity)
    misfits = {service.attempt_of[job.id].id for job in compress(queue, ~can_run) if job.id in service.attempt_of}
    if misfits:  # they run all the same, on terms that the inventory has since outgrown
        return build_snapshot(rows, timing, busy_in_arrays, pinned=pinned | misfits)
    bids = everybody.of(can_run)
    snapshot = Snapshot(
        jobs=tuple(str(job.id) for job in bids.jobs),
        attempts=tuple(service.attempt_of[job.id].id if job.id in service.attempt_of else 0 for job in bids.jobs),
        types=tuple(row.name for row in rows.types),
        nodes=tuple(node.name for node in rows.nodes),
        gpus=tuple(gpu.id for gpu in service.gpus),
        round_s=timing.round_s,
        problem=_problem(rows, service, offered, bids, timing),
        floor=_floor(rows, service, bids.jobs),
        limits=_limits(rows, bids.jobs),
        source=bids.source,
    )
    return snapshot, LeftOut(cannot_run=tuple(compress(queue, ~can_run)), throttled=tuple(throttled))


# -- which GPUs and which jobs -----------------------------------------------------------------------------------


def _in_service(rows: Rows, pinned: frozenset[int]) -> _InService:
    """A GPU whose node is out of service, or that goes with one, stays with whom it has."""
    in_service = {node.id for node in rows.nodes if node.in_service}
    live = {gpu.id for gpu in rows.gpus if gpu.healthy and gpu.node_id in in_service}
    gpus_of: dict[int, set[int]] = defaultdict(set)
    for gpu_id, attempt_id in {**rows.holders, **rows.heirs}.items():  # an heir comes before who still holds it
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
        owner = rows.heirs.get(gpu.id) or rows.holders.get(gpu.id) or 0
        stopping = owner in rows.attempts and rows.attempts[owner].state == Attempt.State.STOPPING
        if gpu.id in live and (not owner or stopping or owner in movable):
            gpus.append(gpu)
            owners.append(0 if stopping else owner)
            releasing.append(stopping)
    return _InService(gpus, owners, releasing, {attempt.job_id: attempt for attempt in movable.values()})


def _queue(rows: Rows, service: _InService, busy_in_arrays: Mapping[UUID, int]) -> tuple[list[JobRow], list[JobRow]]:
    """Jobs to decide on, and members of arrays whose turn has not come."""
    queue, throttled, busy = [], [], Counter(busy_in_arrays)
    for job in rows.jobs:
        if job.state != Job.State.QUEUED:
            queue += [job] if job.id in service.attempt_of else []
        elif job.array_id and job.at_a_time and busy[job.array_id] >= job.at_a_time:
            throttled.append(job)
        else:
            queue.append(job)
            busy.update([job.array_id] if job.array_id else [])
    return queue, throttled


def _can_run(rate: Floats, offered: Configurations, capacity: Ints) -> Bools:
    """Which jobs have a configuration that the GPUs in service hold, and a rate on the average GPU."""
    if not rate.size:
        return np.zeros(len(rate), dtype=np.bool_)
    fits = (offered.usage <= capacity[:, None]).all(axis=0)
    base_rate = normaliser(np.where(fits, rate, 0), offered.usage, capacity)[1]
    return runnable(rate, offered.usage, capacity) & (base_rate > 0)


@dataclass(frozen=True, eq=False)
class _Bids:
    """Jobs, with what each could do in every configuration, and what it holds."""

    jobs: list[JobRow]
    rate: Floats
    source: Ints
    held: Ints
    locked: Bools

    def of(self, kept: Bools) -> "_Bids":
        jobs = list(compress(self.jobs, kept))
        return _Bids(jobs, self.rate[kept], self.source[kept], self.held[kept], self.locked[kept])


def _bids(rows: Rows, service: _InService, offered: Configurations, queue: list[JobRow], timing: Timing) -> _Bids:
    """A locked job can do nothing but go on as it does."""
    rate, source = _rates(rows, offered, queue)
    held = _held(rows, service, offered, queue)
    locked = _locked(service, queue, timing) & (held >= 0)
    elsewhere = np.arange(rate.shape[1]) != held[:, None]
    return _Bids(queue, np.where(locked[:, None] & elsewhere, 0, rate), source, held, locked)


# -- configurations and rates ------------------------------------------------------------------------------------


def _sizes(job: JobRow) -> tuple[int, ...]:
    return gang_sizes(job.gpus_min, job.gpus_max)


def _configurations(rows: Rows, service: _InService, queue: Sequence[JobRow]) -> Configurations:
    """What the nodes in service offer to these jobs."""
    per_node = Counter(gpu.node_id for gpu in service.gpus)
    node_gpus = [[per_node[n.id] for n in rows.nodes if n.gpu_type_id == t.id and n.id in per_node] for t in rows.types]
    even = {size for job in queue if not job.uneven_gang for size in _sizes(job)}
    uneven = {size for job in queue if job.uneven_gang for size in _sizes(job)}
    return Configurations.of(node_gpus, even, uneven=uneven)


def _rates(rows: Rows, offered: Configurations, queue: Sequence[JobRow]) -> tuple[Floats, Ints]:
    specs = [GpuSpec(t.name, t.tflops, t.bandwidth_gbs, t.memory_mib) for t in rows.types]
    machines = Machines(specs, offered.usage, offered.nodes)
    known, workload = _knowledge(rows, queue)
    names = np.array([row.name for row in rows.types])
    valid = np.zeros((len(queue), len(offered.nodes)), dtype=np.bool_)
    for i, job in enumerate(queue):
        valid[i] = (
            valid_configurations(
                machines,
                gpu_types=np.isin(names, job.gpu_types) if job.gpu_types else np.ones(len(names), dtype=np.bool_),
                least_gpus=job.gpus_min,
                most_gpus=job.gpus_max,
                gpu_memory_mib=job.gpu_memory_mib,
            )
            & np.isin(offered.gpus, _sizes(job))
            & (job.uneven_gang == offered.uneven)
        )
    return estimate_rates(machines, known, workload, valid)


def _knowledge(rows: Rows, queue: Sequence[JobRow]) -> tuple[list[Knowledge], Ints]:
    """What is known of each distinct workload, and which of them each job has."""
    index = {row.id: j for j, row in enumerate(rows.types)}
    by_name = {row.name: j for j, row in enumerate(rows.types)}
    measured: dict[tuple[int, str], dict[tuple[int, int, int], Measurement]] = defaultdict(dict)
    for team, workload, kind, gpus, nodes, rate, reports, spread in rows.measured:
        measured[team, workload][index[kind], gpus, nodes] = Measurement(rate, reports, spread)
    known: dict[tuple[int, str, str], tuple[int, Knowledge]] = {}
    of_job = []
    for job in queue:
        key = (job.team_id, job.workload, json.dumps(job.rates, sort_keys=True))
        if key not in known:
            declared = {
                by_name[kind]: {int(gpus): rate for gpus, rate in by.items()}
                for kind, by in job.rates.items()
                if kind in by_name
            }
            known[key] = len(known), Knowledge(measured[key[:2]], declared)
        of_job.append(known[key][0])
    return [knowledge for _, knowledge in known.values()], np.array(of_job, dtype=np.int64)


def _held(rows: Rows, service: _InService, offered: Configurations, queue: Sequence[JobRow]) -> Ints:
    """The configuration that each job holds, -1 for none or one that is offered no more."""
    if not service.attempt_of:  # a cluster without a GPU type has no columns to look in
        return np.full(len(queue), -1, dtype=np.int64)
    index = {row.id: j for j, row in enumerate(rows.types)}
    columns = zip(offered.gpu_type.tolist(), offered.gpus.tolist(), offered.uneven.tolist(), strict=True)
    where = {column: k for k, column in enumerate(columns)}
    held = [
        where.get((index[a.gpu_type_id], a.gpu_count, job.uneven_gang), -1)
        if (a := service.attempt_of.get(job.id))
        else -1
        for job in queue
    ]
    return np.array(held, dtype=np.int64)


def _locked(service: _InService, queue: Sequence[JobRow], timing: Timing) -> Bools:
    """Jobs that keep what they hold: not preemptible, not running yet, or not long enough to be worth a restart."""
    return np.array([_keeps(service.attempt_of.get(job.id), job, timing) for job in queue], dtype=np.bool_)


def _keeps(attempt: AttemptRow | None, job: JobRow, timing: Timing) -> bool:
    if attempt is None:
        return False
    young = attempt.started_at is None or (timing.now - attempt.started_at).total_seconds() < timing.min_run_s
    return young or not job.preemptible or attempt.state in NOT_YET_RUNNING


# -- the three inputs of the core --------------------------------------------------------------------------------


def _problem(rows: Rows, service: _InService, offered: Configurations, bids: _Bids, timing: Timing) -> Problem:
    capacity, jobs = _capacity(rows, service), bids.jobs
    now = timing.now
    age_s = np.array([max((now - job.created_at).total_seconds(), 0.0) for job in jobs])
    total = np.array([job.total_steps or np.inf for job in jobs], dtype=float)
    step = np.array([job.step for job in jobs], dtype=float)
    deadline_s = [(job.deadline - now).total_seconds() if job.deadline else np.inf for job in jobs]
    base_gpus, base_rate = normaliser(bids.rate, offered.usage, capacity)
    isolated_rate = base_rate * np.minimum(1, capacity.sum() / np.maximum(base_gpus * len(jobs), 1))
    return Problem.of(
        bids.rate,
        offered.usage,
        capacity,
        nodes=offered.nodes,
        weight=_weights(rows, jobs),
        age_s=age_s,
        total_steps=total,
        remaining_steps=np.maximum(total - step, 0),
        attained_gpu_s=_attained(service, jobs, now),
        isolated_s=step / isolated_rate,
        received_s=_received(rows, jobs, timing),
        held=bids.held,
        locked=bids.locked,
        restart_s=np.array([job.restore_s for job in jobs], dtype=float),
        restarts=np.array([max(job.attempt_count - 1, 0) for job in jobs], dtype=np.int64),
        deadline_s=np.array(deadline_s, dtype=float),
        price_per_gpu_hour=np.array([float(row.price_per_hour) for row in rows.types]),
        team=np.array([job.team_id for job in jobs], dtype=np.int64),
    )


def _weights(rows: Rows, jobs: Sequence[JobRow]) -> Floats:
    """A team's weight, split over its jobs by theirs; 1 on average."""
    in_team: Counter[int] = Counter()
    for job in jobs:
        in_team[job.team_id] += job.weight  # type: ignore[assignment]  # typeshed's Counter counts in integers
    weight = np.array([rows.teams[job.team_id].weight * job.weight / in_team[job.team_id] for job in jobs])
    return weight / weight.mean() if len(weight) else weight


def _attained(service: _InService, jobs: Sequence[JobRow], now: datetime) -> Floats:
    """GPU-seconds of ended attempts and of the one that runs."""

    def of_running(job: JobRow) -> float:
        attempt = service.attempt_of.get(job.id)
        if attempt is None or attempt.started_at is None:
            return 0.0
        return max((now - attempt.started_at).total_seconds(), 0.0) * attempt.gpu_count

    return np.array([job.attained_gpu_s + of_running(job) for job in jobs])


def _received(rows: Rows, jobs: Sequence[JobRow], timing: Timing) -> Floats:
    """Seconds (m, n) that each job ran on each type since the shares were set."""
    row_of = {job.id: i for i, job in enumerate(jobs)}
    index = {row.id: j for j, row in enumerate(rows.types)}
    received = np.zeros((len(jobs), len(rows.types)))
    for job_id, kind, start, end in rows.received:
        if job_id in row_of:
            seconds = ((end or timing.now) - max(start, timing.shares_since)).total_seconds()
            received[row_of[job_id], index[kind]] += max(seconds, 0.0)
    return received


def _capacity(rows: Rows, service: _InService) -> Ints:
    kind = {node.id: node.gpu_type_id for node in rows.nodes}
    count = Counter(kind[gpu.node_id] for gpu in service.gpus)
    return np.array([count[row.id] for row in rows.types], dtype=np.int64)


def _floor(rows: Rows, service: _InService, jobs: Sequence[JobRow]) -> Floor:
    row_of = {service.attempt_of[job.id].id: i for i, job in enumerate(jobs) if job.id in service.attempt_of}
    node_index = {node.id: index for index, node in enumerate(rows.nodes)}
    type_index = {row.id: j for j, row in enumerate(rows.types)}
    return Floor(
        gpu_node=np.array([node_index[gpu.node_id] for gpu in service.gpus], dtype=np.int64),
        node_type=np.array([type_index[node.gpu_type_id] for node in rows.nodes], dtype=np.int64),
        holder=np.array([row_of.get(owner, -1) for owner in service.owner], dtype=np.int64),
        releasing=np.array(service.releasing, dtype=np.bool_),
        node_cpus=np.array([node.cpus for node in rows.nodes], dtype=float),
        node_memory_mib=np.array([node.memory_mib for node in rows.nodes], dtype=float),
        cpus_per_gpu=np.array([job.cpus_per_gpu for job in jobs], dtype=float),
        memory_per_gpu_mib=np.array([job.memory_per_gpu_mib for job in jobs], dtype=float),
        uneven=np.array([job.uneven_gang for job in jobs], dtype=np.bool_),
    )


def _limits(rows: Rows, jobs: Sequence[JobRow]) -> Limits:
    """The most GPUs at once of each team and of each of its members; jobs that are no rows count as users."""
    groups: dict[tuple[int, int], int] = {}
    most: list[int] = []

    def group(key: tuple[int, int], cap: int | None) -> int:
        if cap is None:
            return -1
        if key not in groups:
            groups[key] = len(most)
            most.append(cap)
        return groups[key]

    membership = [
        (
            group((job.team_id, 0), rows.teams[job.team_id].max_gpus),
            group((job.team_id, job.owner_id), rows.teams[job.team_id].max_gpus_per_member),
        )
        for job in jobs
    ]
    used = np.zeros(len(most), dtype=np.int64)
    chosen, all_jobs = {job.id for job in jobs}, {job.id: job for job in rows.jobs}
    for attempt in rows.attempts.values():
        job = all_jobs.get(attempt.job_id)
        if job is not None and job.id not in chosen:
            for key in ((job.team_id, 0), (job.team_id, job.owner_id)):
                if key in groups:
                    used[groups[key]] += attempt.gpu_count
    return Limits(np.array(membership, dtype=np.int64).reshape(len(jobs), 2), np.array(most, dtype=np.int64), used)
