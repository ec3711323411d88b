"""Snapshot of a round: the input rows as arrays, with the primary keys behind them. Built without queries."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import cache
from itertools import compress
from math import ceil
from typing import Any, NamedTuple, Self
from uuid import UUID

import numpy as np

from accounting_app.durations.duration_history import history_of
from allocation.configurations import Configurations
from allocation.demands import Demands
from allocation.fairness import mean_present
from allocation.inventory import Inventory
from allocation.problem import LEAST_WEIGHT, Problem, isolated_rate, normaliser
from allocation.quotas import Quotas
from allocation.types import Bools, Floats, Ints
from estimation.batch_tuning import Tuned
from estimation.boosted_durations import DurationEstimator
from estimation.durations import DurationEstimate
from estimation.rate_evidence import Evidence
from scheduler_app.models import SetAside
from scheduler_app.round.arrays import array_tasks, sampled_durations
from scheduler_app.round.candidate_jobs import InService, gpus_in_service, queue_of
from scheduler_app.round.demands import demands_of
from scheduler_app.round.inputs import AttemptRow, InputRows, JobRow, NodeRow
from scheduler_app.round.job_options import (
    JobOptions,
    Timing,
    can_run,
    capacity_of,
    configurations,
    job_options_of,
    most_replicas,
    units_of,
)
from scheduler_app.round.lengths import EndedDurations, lengths_of
from scheduler_app.round.quotas import type_quotas
from scheduler_app.windows.reading import WindowRow


@dataclass(frozen=True)
class Snapshot:
    """One round's input: m jobs (rows), n types, K configurations, G GPUs on N nodes in service."""

    jobs: tuple[str, ...]
    attempts: tuple[int, ...]
    """The attempt with which each row holds GPUs; 0: the job waits."""
    types: tuple[str, ...]
    nodes: tuple[str, ...]
    gpus: tuple[int, ...]
    round_s: float
    problem: Problem
    inventory: Inventory
    quotas: Quotas
    source: Ints
    """Where each rate (m, K) comes from: `estimation.rates.Source`."""
    evidence: Evidence
    """Its spread, and the number of runs behind it."""
    tuned: Mapping[int, Tuned] = field(default_factory=dict)
    """Row → batch size per configuration, for jobs whose batch size is tuned; not archived."""
    durations: Sequence[DurationEstimate | None] = ()
    """Of each row, as forecast in this round; not archived."""

    def type_of(self, k: int) -> str:
        """The GPU type of a configuration."""
        return self.types[int(self.problem.usage[:, k].argmax())]

    def subset(self, kept: Bools) -> Self:
        """The same snapshot for some of its rows (m,); those that hold GPUs must be among them."""
        rows, position = np.flatnonzero(kept), np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)
        return replace(
            self,
            jobs=tuple(compress(self.jobs, kept)),
            attempts=tuple(compress(self.attempts, kept)),
            problem=self.problem.subset(rows),
            inventory=self.inventory.of_rows(rows, position[self.inventory.holder]),
            quotas=self.quotas.of_rows(rows),
            source=self.source[rows],
            evidence=self.evidence.of(rows),
            tuned={int(position[row]): tuned for row, tuned in self.tuned.items() if kept[row]},
            durations=tuple(compress(self.durations, kept)),
        )

    def without_limit(self) -> Self:
        """The same snapshot without a time limit for the decision."""
        return replace(self, problem=replace(self.problem, solve_limit_s=np.inf))


class Crossing(StrEnum):
    """Why a job does not start before a window begins."""

    LATE = "it might not end before"
    NEAR = "it is too long for the time between windows, and would be stopped before its start has paid"
    NEVER = "it is too long for the time between windows, and may not be stopped"
    UNKNOWN = "how long it runs is not known"


class KeptOff(NamedTuple):
    """The window that keeps a job from nodes, and why the job does not start before it."""

    window: WindowRow
    why: Crossing = Crossing.LATE


@dataclass(frozen=True)
class LeftOut:
    """Queued jobs that were left out of the snapshot, by reason."""

    cannot_run: tuple[JobRow, ...] = ()
    """No node in service could run them."""
    throttled: tuple[JobRow, ...] = ()
    """Their array's `at_a_time` limit is reached."""
    set_aside: Mapping[UUID, SetAside] = field(default_factory=dict)
    """The scheduler raised an error over them."""
    kept_off: Mapping[UUID, KeptOff] = field(default_factory=dict)
    """Windows keep them from all nodes that could run them."""
    partly_kept_off: Mapping[int, KeptOff] = field(default_factory=dict)
    """Rows of the snapshot that windows keep from some nodes: they are not left out."""


def build_snapshot(
    rows: InputRows, timing: Timing, *, pinned: frozenset[int] = frozenset()
) -> tuple[Snapshot, LeftOut]:
    """Build arrays from rows. Jobs that can run nowhere are left out, because policies need a feasible problem.

    Attempts that are `pinned` keep their GPUs; both are left out.
    """
    service = gpus_in_service(rows, pinned)
    queue, throttled = queue_of(rows, service)
    offered = configurations(rows, service, queue)
    capacity = capacity_of(rows, service)
    all_options = job_options_of(rows, service, offered, queue, timing)
    able = can_run(all_options.rate, offered, capacity)
    misfits = {service.attempt_of[job.id].id for job in compress(queue, ~able) if job.id in service.attempt_of}
    if misfits:  # they run, but the inventory has changed such that they could not be placed again
        return build_snapshot(rows, timing, pinned=pinned | misfits)
    options = all_options.of(able)
    problem, durations = _problem(rows, service, offered, options, timing)
    attempts = [service.attempt_of.get(job.id) for job in options.jobs]
    demands = demands_of(rows, options.jobs, attempts, offered, options.rate)
    snapshot = Snapshot(
        jobs=tuple(str(job.id) for job in options.jobs),
        attempts=tuple(attempt.id if attempt else 0 for attempt in attempts),
        types=tuple(row.name for row in rows.types),
        nodes=tuple(node.name for node in rows.nodes),
        gpus=tuple(gpu.id for gpu in service.gpus),
        round_s=timing.round_s,
        problem=problem,
        inventory=_inventory(rows, service, options.jobs, demands),
        quotas=replace(_quotas(rows, options.jobs), by_type=type_quotas(rows, options.jobs)),
        source=options.source,
        evidence=options.evidence,
        tuned={row: tuned for row, tuned in enumerate(options.tuned) if tuned is not None},
        durations=durations,
    )
    return snapshot, LeftOut(cannot_run=tuple(compress(queue, ~able)), throttled=tuple(throttled))


def _problem(
    rows: InputRows, service: InService, offered: Configurations, options: JobOptions, timing: Timing
) -> tuple[Problem, list[DurationEstimate | None]]:
    """The problem, and the durations behind the steps that are left."""
    capacity, jobs = capacity_of(rows, service), options.jobs
    now = timing.now
    age_s = np.array([max((now - job.arrived_at).total_seconds(), 0.0) for job in jobs])
    deadline_s = [(job.deadline - now).total_seconds() if job.deadline else np.inf for job in jobs]
    gpus_per_replica = np.maximum(units_of(rows.types, jobs), 1)
    base_gpus, base_rate = normaliser(options.rate, offered.usage, capacity, gpus_per_replica)
    held_s = _held_s(service, jobs, now)
    worked_s = seconds_worked(jobs, options.rate, options.held, held_s, base_gpus=base_gpus, base_rate=base_rate)
    estimator = DurationEstimator(history_of(rows.ended), rows.duration_model)
    ended = EndedDurations(sampled_durations(rows), estimator, rows.stages)
    lengths = lengths_of(jobs, ended, base_gpus=base_gpus, base_rate=base_rate, worked_s=worked_s)
    each_s = base_gpus / base_rate
    tasks = array_tasks(rows, jobs, options.held < 0)
    arrays = tasks.columns(lengths.remaining_steps * each_s, lengths.total_steps * each_s)
    problem = Problem.of(
        options.rate,
        offered.usage,
        capacity,
        nodes=offered.nodes,
        weight=_weights(rows, jobs),
        job_weight=np.array([job.weight for job in jobs], dtype=float),
        team_backlog_s=np.array([rows.backlog_s.get(job.team_id, 0.0) for job in jobs], dtype=float),
        age_s=age_s,
        total_steps=lengths.total_steps,
        remaining_steps=lengths.remaining_steps,
        attained_gpu_s=_attained(service, jobs, now),
        isolated_s=lengths.done_steps / isolated_rate(base_gpus, base_rate, capacity, _beside(rows, jobs, now)),
        received_s=_received(rows, jobs, timing),
        held=options.held,
        held_s=held_s,
        locked=options.unlock_s > 0,
        unlock_s=options.unlock_s,
        gpus_per_replica=gpus_per_replica,
        most_replicas=most_replicas(rows, service, jobs),
        restart_s=np.array([job.restart_s for job in jobs], dtype=float),
        restarts=np.array([max(job.attempt_count - 1, 0) for job in jobs], dtype=np.int64),
        deadline_s=np.array(deadline_s, dtype=float),
        limit_s=_limit_s(jobs, held_s),
        price_per_gpu_hour=np.array([float(row.price_per_hour) for row in rows.types]),
        team=np.array([job.team_id for job in jobs], dtype=np.int64),
        array_others_gpu_s=arrays.others_gpu_s,
        pilot=arrays.pilot,
        unsampled=arrays.unsampled,
        solve_limit_s=timing.solve_limit_s,
    )
    return problem, lengths.durations


def _weights(rows: InputRows, jobs: Sequence[JobRow]) -> Floats:
    """Weight (m,): the team's weight split over its jobs in proportion to theirs; the mean is 1, none next to 0."""
    in_team: Counter[int] = Counter()
    for job in jobs:
        in_team[job.team_id] += job.weight  # type: ignore[assignment]  # typeshed's Counter counts in integers
    weight = np.array([rows.teams[job.team_id].weight * job.weight / in_team[job.team_id] for job in jobs])
    return np.maximum(weight / weight.mean(), LEAST_WEIGHT) if len(weight) else weight


def _beside(rows: InputRows, jobs: Sequence[JobRow], now: datetime) -> Floats:
    """Mean number (m,) of these jobs, itself among them, that were there while each did the work that it has done.

    Jobs that came after it ran last do not change what its work would have taken on a share of its own.
    """
    arrived_s = np.array([(job.arrived_at - now).total_seconds() for job in jobs])
    ran = [rows.ran.get(job.id) for job in jobs]
    began_s = np.array([(it.first_at - now).total_seconds() if it else 0.0 for it in ran])
    ended_s = np.array([(it.last_at - now).total_seconds() if it else 0.0 for it in ran])
    return mean_present(arrived_s, began_s, np.maximum(ended_s, began_s))


def _attained(service: InService, jobs: Sequence[JobRow], now: datetime) -> Floats:
    """Attained service (m,): GPU-seconds of ended attempts and of the running one."""

    def of_running(job: JobRow) -> float:
        attempt = service.attempt_of.get(job.id)
        if attempt is None or attempt.started_at is None:
            return 0.0
        return max((now - attempt.started_at).total_seconds(), 0.0) * attempt.gpu_count

    return np.array([job.attained_gpu_s + of_running(job) for job in jobs])


def _held_s(service: InService, jobs: Sequence[JobRow], now: datetime) -> Floats:
    """Seconds (m,) since the running attempt started; 0: none has."""
    running = [service.attempt_of.get(job.id) for job in jobs]
    started = [attempt.started_at if attempt else None for attempt in running]
    return np.array([max((now - start).total_seconds(), 0.0) if start else 0.0 for start in started])


def _limit_s(jobs: Sequence[JobRow], held_s: Floats) -> Floats:
    """Seconds (m,) of running that the time limit leaves; infinite: it has none."""
    limit_s = [np.inf if job.time_limit_s is None else job.time_limit_s - job.ran_s for job in jobs]
    left_s: Floats = np.maximum(np.array(limit_s, dtype=float) - held_s, 0)
    return left_s


def seconds_worked(
    jobs: Sequence[JobRow], rate: Floats, held: Ints, held_s: Floats, *, base_gpus: Floats, base_rate: Floats
) -> Floats:
    """Work (m,) that each job has done, in seconds of its smallest gang on average GPUs.

    How fast the GPUs of ended attempts were is not known here: they count as average ones.
    """
    ended_s = np.array([job.attained_gpu_s for job in jobs]) / base_gpus
    of_held = np.take_along_axis(rate, np.maximum(held, 0)[:, None], axis=1)[:, 0]
    worked_s: Floats = ended_s + np.where(held >= 0, held_s * of_held / base_rate, 0)
    return worked_s


def rate_spreads(snapshot: Snapshot) -> Floats:
    """Spread (m,) of the rate that each row has, or would have where it is fastest."""
    problem = snapshot.problem
    if not len(snapshot.jobs):
        return np.zeros(0)
    column = np.where(problem.held >= 0, problem.held, problem.rate.argmax(axis=1))
    spread: Floats = np.take_along_axis(snapshot.evidence.spread, column[:, None], axis=1)[:, 0]
    return spread


def _received(rows: InputRows, jobs: Sequence[JobRow], timing: Timing) -> Floats:
    """Time received (m, n): seconds that each job ran on each GPU type since the shares were set."""
    row_of = {job.id: i for i, job in enumerate(jobs)}
    index = {row.id: j for j, row in enumerate(rows.types)}
    ran = [
        (row_of[job], index[kind], ((end or timing.now) - max(start, timing.shares_since)).total_seconds())
        for job, kind, start, end in rows.received
        if job in row_of
    ]
    received = np.zeros((len(jobs), len(rows.types)))
    if ran:
        job_rows, kinds, seconds = zip(*ran, strict=True)
        np.add.at(received, (job_rows, kinds), np.maximum(seconds, 0.0))
    return received


def _inventory(rows: InputRows, service: InService, jobs: Sequence[JobRow], demands: Demands | None) -> Inventory:
    row_of = {service.attempt_of[job.id].id: i for i, job in enumerate(jobs) if job.id in service.attempt_of}
    node_index = {node.id: index for index, node in enumerate(rows.nodes)}
    type_index = {row.id: j for j, row in enumerate(rows.types)}
    cpus, memory_mib = _left_for_rows(rows, service)
    return Inventory(
        gpu_node=np.array([node_index[gpu.node_id] for gpu in service.gpus], dtype=np.int64),
        node_type=np.array([type_index[node.gpu_type_id] for node in rows.nodes], dtype=np.int64),
        holder=np.array([row_of.get(owner, -1) for owner in service.owner], dtype=np.int64),
        releasing=np.array(service.releasing, dtype=np.bool_),
        node_cpus=cpus,
        node_memory_mib=memory_mib,
        cpus_per_gpu=np.array([job.cpus_per_gpu for job in jobs], dtype=float),
        memory_per_gpu_mib=np.array([job.memory_per_gpu_mib for job in jobs], dtype=float),
        uneven=np.array([job.uneven_gang for job in jobs], dtype=np.bool_),
        node_domain=_engine_of_nodes(rows),
        node_loss_rate=_loss_rates(rows),
        gpu_slower_by=_slower_by(rows, service),
        node_price=_node_prices(rows),
        node_least=_booked_at_least(rows),
        row_booked=_booked_for_rows(rows, service, row_of, len(jobs)),
        demands=demands,
        **_node_sets(rows, jobs),
    )


def _loss_rates(rows: InputRows) -> Floats | None:
    """Expected losses per second of each node (N,); one that was just added, or is only supposed, counts as steady."""
    if not rows.loss_rates:
        return None
    steadiest = min(rows.loss_rates.values())
    return np.array([rows.loss_rates.get(node.name, steadiest) for node in rows.nodes])


def _slower_by(rows: InputRows, service: InService) -> Floats | None:
    """Fraction (G,) by which each GPU is slower than its type; None if none is slow.

    A site that gives out its GPUs itself is told no GPU: there a slow one is known, and cannot be avoided.
    """
    chosen_here = {node.id for node in rows.nodes if node.tunes}
    slower = [gpu.slower_by if gpu.node_id in chosen_here else 0.0 for gpu in service.gpus]
    return np.array(slower) if any(slower) else None


def _booked_at_least(rows: InputRows) -> Floats | None:
    """CPUs and MiB (N, 2) that the engine of each node books for a GPU at least; None where none books any."""
    least = [(node.least_cpus_per_gpu, node.least_memory_per_gpu_mib) for node in rows.nodes]
    return np.array(least, dtype=float) if any(any(both) for both in least) else None


def _node_prices(rows: InputRows) -> Floats | None:
    """Price (N,) of a GPU of each node per hour; None where no node has one of its own."""
    own = [node.price_per_gpu_hour for node in rows.nodes]
    if all(price is None for price in own):
        return None
    of_type = {row.id: float(row.price_per_hour) for row in rows.types}
    kinds = [node.gpu_type_id for node in rows.nodes]
    return np.array([of_type[kind] if price is None else float(price) for kind, price in zip(kinds, own, strict=True)])


def _engine_of_nodes(rows: InputRows) -> Ints | None:
    """The engine (N,) of each node as a number; None if there is one."""
    names = {name: number for number, name in enumerate(sorted({node.engine_id for node in rows.nodes}))}
    return np.array([names[node.engine_id] for node in rows.nodes], dtype=np.int64) if len(names) > 1 else None


def _node_sets(rows: InputRows, jobs: Sequence[JobRow]) -> dict[str, Any]:
    """The nodes with the storage that jobs name, one set for all jobs that name the same; {} if none names any."""
    named = sorted({job.needs for job in jobs if job.needs})
    if not named:
        return {}
    place = {mounts: s for s, mounts in enumerate(named)}
    sets = [[node.storage.issuperset(mounts) for node in rows.nodes] for mounts in named]
    node_set = np.array([place.get(job.needs, -1) for job in jobs], dtype=np.int64)
    return {"node_set": node_set, "node_sets": np.array(sets, dtype=np.bool_)}


def _left_for_rows(rows: InputRows, service: InService) -> tuple[Floats, Floats]:
    """CPUs and MiB (N,) of each node that this round may allocate.

    Those that jobs outside Motley use are not among them, nor those of attempts that keep their GPUs. What an attempt
    holds stays with it, whatever is said of others.
    """
    all_there = [(node.cpus, node.memory_mib) for node in rows.nodes]
    of_others = [(node.foreign_cpus, node.foreign_memory_mib) for node in rows.nodes]
    capacity, foreign = (np.array(amounts, dtype=float).reshape(-1, 2) for amounts in (all_there, of_others))
    use, shared = _use_by_attempts(rows, service), foreign.sum(axis=1, keepdims=True) > 0
    left = np.where(shared, np.maximum(capacity - foreign, use.held), capacity) - use.kept
    return left[:, 0], left[:, 1]


class AttemptUse(NamedTuple):
    """CPUs and MiB (N, 2) of attempts, on nodes where these matter."""

    held: Floats
    kept: Floats
    """With GPUs that the round may not allocate."""


def _use_by_attempts(rows: InputRows, service: InService) -> AttemptUse:
    claimed = list(_claimed(rows, {gpu.id for gpu in service.gpus}))
    nodes, keeps = np.array([one[:2] for one in claimed], dtype=np.int64).reshape(-1, 2).T
    given = np.array([one[2] for one in claimed], dtype=float).reshape(-1, 2)
    use = AttemptUse(*(np.zeros((len(rows.nodes), 2)) for _ in AttemptUse._fields))
    np.add.at(use.held, nodes, given)
    np.add.at(use.kept, nodes, keeps[:, None] * given)
    return use


def _claimed(rows: InputRows, in_service: Collection[int]) -> Iterator[tuple[int, bool, tuple[float, int]]]:
    """Of GPUs that attempts have claimed: the node, whether it is kept, and the CPUs and MiB that the attempt has.

    Only those that the attempt keeps, and those of nodes that jobs outside Motley use.
    """
    jobs, place = rows.jobs_of_attempts, {node.id: v for v, node in enumerate(rows.nodes)}
    for gpu in rows.gpus:
        node, keeps = rows.nodes[place[gpu.node_id]], gpu.id not in in_service
        attempt = rows.attempts.get(rows.waiting_claims.get(gpu.id) or rows.holders.get(gpu.id, 0))
        if attempt is None or attempt.job_id not in jobs:
            continue
        if keeps or node.foreign_cpus or node.foreign_memory_mib:
            yield place[gpu.node_id], keeps, _given(jobs[attempt.job_id], attempt, node)


def _booked_for_rows(rows: InputRows, service: InService, row_of: Mapping[int, int], count: int) -> Floats | None:
    """CPUs and MiB (m, 2) that engines have booked for each GPU of the rows of these attempts; None: none books any."""
    booking = {node.id: node for node in rows.nodes if node.least_cpus_per_gpu > 0}
    if not booking:
        return None
    jobs, booked = {job.id: job for job in rows.jobs}, np.zeros((count, 2))
    for gpu, owner in zip(service.gpus, service.owner, strict=True):
        if owner in row_of and gpu.node_id in booking:
            attempt, row = rows.attempts[owner], row_of[owner]
            booked[row] = np.maximum(booked[row], _given(jobs[attempt.job_id], attempt, booking[gpu.node_id]))
    return booked


def _given(job: JobRow, attempt: AttemptRow, node: NodeRow) -> tuple[float, int]:
    """CPUs and MiB for a GPU of an attempt on a node: what its job asks for, or what the node's engine has booked."""
    cpus = max(job.cpus_per_gpu, node.least_cpus_per_gpu)
    memory_mib = max(job.memory_per_gpu_mib, node.least_memory_per_gpu_mib)
    if not node.least_cpus_per_gpu:
        return cpus, memory_mib
    booked = _in_cores(attempt, max(cpus, attempt.cpus_per_gpu), node.cpus_per_core)
    return booked, max(memory_mib, attempt.memory_per_gpu_mib)


def _in_cores(attempt: AttemptRow, cpus_per_gpu: int, cpus_per_core: int) -> float:
    """CPUs per GPU that are booked for an attempt: on each of its nodes whole cores."""
    gpus = max(attempt.gpu_count // len(attempt.nodes), 1) if attempt.nodes else 1
    return ceil(gpus * cpus_per_gpu / cpus_per_core) * cpus_per_core / gpus


def _quotas(rows: InputRows, jobs: Sequence[JobRow]) -> Quotas:
    """Quotas of GPUs per team and per member; attempts outside the snapshot count as used."""
    groups: dict[tuple[int, int], int] = {}
    most: list[int] = []

    def group(key: tuple[int, int], cap: int | None) -> int:
        if cap is None:
            return -1
        if key not in groups:
            groups[key] = len(most)
            most.append(cap)
        return groups[key]

    @cache
    def groups_of(team: int, owner: int) -> tuple[int, int]:
        caps = rows.teams[team]
        return group((team, 0), caps.max_gpus), group((team, owner), caps.max_gpus_per_member)

    membership = [groups_of(job.team_id, job.owner_id) for job in jobs]
    used = np.zeros(len(most), dtype=np.int64)
    chosen, all_jobs = {job.id for job in jobs}, rows.jobs_of_attempts
    for attempt in rows.attempts.values():
        job = all_jobs.get(attempt.job_id)
        if job is not None and job.id not in chosen:
            for key in ((job.team_id, 0), (job.team_id, job.owner_id)):
                if key in groups:
                    used[groups[key]] += attempt.gpu_count
    return Quotas(np.array(membership, dtype=np.int64).reshape(len(jobs), 2), np.array(most, dtype=np.int64), used)
