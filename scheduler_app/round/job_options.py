"""Options of candidate jobs: feasible configurations with estimated throughputs on the GPUs in service. No queries."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, lru_cache
from itertools import compress
from math import inf
from typing import Any

import numpy as np

from allocation.configurations import Configurations, gang_sizes
from allocation.gangs import holds_equal_parts
from allocation.problem import normaliser, runnable
from allocation.rounds.mechanism import least_run_s
from allocation.types import Bools, Floats, Ints
from cluster_app.replica_size import GpusPerReplica
from estimation.batch_tuning import NOISE_GRAIN, Tuned, tuned_rates
from estimation.fitted_models import Fits, rounded
from estimation.goodput import BatchLimits, GradientNoise
from estimation.gpu_specifications import GPU_SPECIFICATIONS
from estimation.profile import GpuSpec, Knowledge, Measurement, Tuning
from estimation.profiling import MEASUREMENT_S
from estimation.rate_evidence import Evidence, rate_evidence, table_evidence
from estimation.rates import Machines, estimate_rates, valid_configurations
from estimation.replicas import InReplicas
from jobs_app.models import Attempt
from scheduler_app.round.candidate_jobs import InService
from scheduler_app.round.inputs import AttemptRow, DeclaredFor, InputRows, JobRow, TypeRow
from scheduler_app.round.known_workloads import rate_factors

NOT_YET_RUNNING = (Attempt.State.CLAIMED, Attempt.State.LAUNCHING)


@dataclass(frozen=True)
class Timing:
    """Timing of a round, from the policy setting; time received counts from `shares_since`."""

    now: datetime
    round_s: float
    min_run_s: float
    shares_since: datetime
    solve_limit_s: float = inf


def can_run(rate: Floats, offered: Configurations, capacity: Ints) -> Bools:
    """Mask (m,) of jobs with a configuration that fits the GPUs in service and a positive average rate."""
    if not rate.size:
        return np.zeros(len(rate), dtype=np.bool_)
    fits = (offered.usage <= capacity[:, None]).all(axis=0)
    base_rate = normaliser(np.where(fits, rate, 0), offered.usage, capacity)[1]
    return runnable(rate, offered.usage, capacity) & (base_rate > 0)


@dataclass(frozen=True, eq=False)
class JobOptions:
    """Candidate jobs with the rate of each configuration, and the configuration that each holds."""

    jobs: list[JobRow]
    rate: Floats
    source: Ints
    evidence: Evidence
    held: Ints
    unlock_s: Floats
    tuned: list[Tuned | None]
    """Per job: the tuned batch size for every configuration; None: the batch size is not tuned."""

    def of(self, kept: Bools) -> "JobOptions":
        jobs, tuned = list(compress(self.jobs, kept)), list(compress(self.tuned, kept))
        rate, source, evidence = self.rate[kept], self.source[kept], self.evidence.of(kept)
        return JobOptions(jobs, rate, source, evidence, self.held[kept], self.unlock_s[kept], tuned)


def job_options_of(
    rows: InputRows, service: InService, offered: Configurations, queue: list[JobRow], timing: Timing
) -> JobOptions:
    """Options of the queued and running jobs. Locks leave rates unchanged: shares last many rounds, a lock one."""
    rate, source, evidence, tuned = _rates(rows, service, offered, queue)
    held = _held(rows, service, offered, queue)
    unlock_s = np.where(held >= 0, _unlock_s(service, queue, timing), 0)
    return JobOptions(queue, rate, source, evidence, held, unlock_s, tuned)


def capacity_of(rows: InputRows, service: InService) -> Ints:
    kind = {node.id: node.gpu_type_id for node in rows.nodes}
    count = Counter(kind[gpu.node_id] for gpu in service.gpus)
    return np.array([count[row.id] for row in rows.types], dtype=np.int64)


def gangs_on(job: JobRow, gpu_type: str) -> tuple[int, ...]:
    """Feasible gang sizes of the job on the type: its numbers of replicas times GPUs per replica."""
    unit = job.gpus_per_replica.on(gpu_type)
    sizes = gang_sizes(*job.gpus_per_replica.replicas(job.gpus_min, job.gpus_max)) if unit else ()
    return tuple(unit * replicas for replicas in sizes)


def units_of(types: Sequence[TypeRow], jobs: Sequence[JobRow]) -> Ints:
    """GPUs of each type that one replica of each job takes (m, n); 0: it may not be used."""
    of_size: dict[GpusPerReplica, list[int]] = {}
    for size in {job.gpus_per_replica for job in jobs}:
        of_size[size] = [size.on(kind.name) for kind in types]
    units = [of_size[job.gpus_per_replica] for job in jobs]
    return np.array(units, dtype=np.int64).reshape(len(jobs), len(types))


def configurations(rows: InputRows, service: InService, queue: Sequence[JobRow]) -> Configurations:
    """The configurations that the nodes in service offer for the gang sizes of these jobs."""
    per_node = Counter(gpu.node_id for gpu in service.gpus)
    of_type = [[n for n in rows.nodes if n.gpu_type_id == kind.id and n.id in per_node] for kind in rows.types]
    node_gpus = [[per_node[node.id] for node in nodes] for nodes in of_type]
    engines = [[node.engine_id for node in nodes] for nodes in of_type]
    alike = {(job.uneven_gang, job.gpus_min, job.gpus_max, job.gpus_per_replica): job for job in queue}.values()
    sizes: tuple[set[int], set[int]] = set(), set()
    for job in alike:
        types = [kind.name for kind in rows.types] if job.gpus_per_replica.several else [""]
        sizes[job.uneven_gang].update(size for kind in types for size in gangs_on(job, kind))
    even, uneven = sizes
    return Configurations.of(node_gpus, even, uneven=uneven, domains=engines)


def _rates(
    rows: InputRows, service: InService, offered: Configurations, queue: Sequence[JobRow]
) -> tuple[Floats, Ints, Evidence, list[Tuned | None]]:
    """Rates with sources and evidence, and tuned batches; jobs of equal replicas are estimated together."""
    specs = gpu_specs(rows.types)
    machines, units = Machines(specs, offered.usage, offered.nodes), units_of(rows.types, queue)
    factors = rate_factors(rows.known_rates, [kind.id for kind in rows.types], specs)
    valid = _valid(machines, offered, queue) & _with_storage(rows, service, offered, queue)
    rate: Floats = np.zeros(valid.shape)
    source: Ints = np.zeros(valid.shape, dtype=np.int64)
    evidence = table_evidence(source)
    tuned: list[Tuned | None] = [None] * len(queue)
    alike: dict[bytes, list[int]] = defaultdict(list)
    for i, unit in enumerate(units):
        alike[unit.tobytes()].append(i)
    for members in alike.values():
        view = InReplicas.of(machines, units[members[0]])
        known, workload = knowledge_of(rows, [queue[i] for i in members])
        known = [view.known(one) for one in known]
        told = factors if view.of_gpus else None  # what others measured is not by this job's replicas
        found = estimate_rates(view.machines, known, workload, valid[members][:, view.columns], told)
        rate[members], source[members] = view.spread(found[0]), view.spread(found[1])
        behind = rate_evidence(view.machines, known, workload, found[1])
        evidence.spread[members], evidence.runs[members] = view.spread(behind.spread), view.spread(behind.runs)
        for i, of_job in zip(members, _tuned(view, known, workload), strict=True):
            tuned[i] = of_job
    return rate, source, evidence, tuned


def gpu_specs(types: Sequence[TypeRow]) -> list[GpuSpec]:
    """Specifications of the GPU types; one with unknown figures is taken to be as fast as the slowest known type."""
    known = [
        GpuSpec(t.name, t.tflops, t.bandwidth_gbs, t.memory_mib)
        for t in types
        if t.tflops is not None and t.bandwidth_gbs is not None
    ]
    assumed = min(known, key=lambda spec: spec.speed, default=GPU_SPECIFICATIONS["t4"].spec)
    spec_of = {spec.name: spec for spec in known}
    return [spec_of.get(t.name) or replace(assumed, name=t.name, memory_mib=t.memory_mib) for t in types]


def _tuned(view: InReplicas, known: Sequence[Knowledge], workload: Ints) -> list[Tuned | None]:
    """Tuned batch sizes per job; the models were fitted for the rates already."""
    of_workload = [view.spread_tuned(tuned_rates(view.machines, one, Fits(0))) if one.tuning else None for one in known]
    return [of_workload[w] for w in workload.tolist()]


def _valid(machines: Machines, offered: Configurations, queue: Sequence[JobRow]) -> Bools:
    """Mask (m, K) of the configurations that each job allows; computed once per distinct request."""
    answers: dict[tuple[Any, ...], int] = {}
    rows: list[Bools] = []
    of_job = []
    for job in queue:
        gang = job.gpus_min, job.gpus_max, job.gpus_per_replica, job.uneven_gang
        request = (tuple(job.gpu_types), job.gpu_memory_mib, gang)
        if request not in answers:
            answers[request] = len(rows)
            rows.append(_valid_for(machines, offered, job))
        of_job.append(answers[request])
    return np.array(rows, dtype=np.bool_).reshape(len(rows), len(offered.nodes))[np.array(of_job, dtype=np.int64)]


def _valid_for(machines: Machines, offered: Configurations, job: JobRow) -> Bools:
    names = np.array([spec.name for spec in machines.specs])
    allowed = valid_configurations(
        machines,
        gpu_types=np.isin(names, job.gpu_types) if job.gpu_types else np.ones(len(names), dtype=np.bool_),
        least_gpus=job.gpus_min,
        most_gpus=job.gpus_max,
        gpu_memory_mib=job.gpu_memory_mib,
    )
    sizes = [np.isin(offered.gpus, gangs_on(job, name)) for name in names] or [np.zeros(0, dtype=np.bool_)]
    of_size = np.array(sizes)[offered.gpu_type, np.arange(len(offered.nodes))]
    valid: Bools = allowed & of_size & (job.uneven_gang == offered.uneven)
    return valid


def _with_storage(rows: InputRows, service: InService, offered: Configurations, queue: Sequence[JobRow]) -> Bools:
    """Mask (m, K) of the configurations for which enough nodes have the storage that each job names."""
    fits: dict[tuple[str, ...], Bools] = {(): np.ones(len(offered.nodes), dtype=np.bool_)}
    for mounts in {job.needs for job in queue if job.needs}:
        fits[mounts] = _on_nodes_with(frozenset(mounts), rows, service, offered)
    return np.array([fits[job.needs] for job in queue], dtype=np.bool_).reshape(len(queue), len(offered.nodes))


def _on_nodes_with(mounts: frozenset[str], rows: InputRows, service: InService, offered: Configurations) -> Bools:
    """Mask (K,) of the configurations that fit on the nodes of one engine with this storage."""
    per_node, index = Counter(gpu.node_id for gpu in service.gpus), {row.id: j for j, row in enumerate(rows.types)}
    gpus: list[dict[str, list[int]]] = [defaultdict(list) for _ in rows.types]
    for node in rows.nodes:
        if mounts <= node.storage:
            gpus[index[node.gpu_type_id]][node.engine_id].append(per_node[node.id])
    columns = zip(offered.gpu_type.tolist(), offered.gpus.tolist(), offered.nodes.tolist(), offered.uneven, strict=True)
    fits = [
        any(sum(its) >= k if uneven else holds_equal_parts(its, k, nodes) for its in gpus[j].values())
        for j, k, nodes, uneven in columns
    ]
    return np.array(fits, dtype=np.bool_)


def knowledge_of(rows: InputRows, queue: Sequence[JobRow]) -> tuple[list[Knowledge], Ints]:
    """Knowledge of each distinct workload, and the index (m,) of each job's workload."""
    measured, places = _measured_in(rows), _places_in({row.name: j for j, row in enumerate(rows.types)})
    known: dict[tuple[Any, ...], tuple[int, Knowledge]] = {}
    of_job = []
    for job in queue:
        key = (job.team_id, job.workload, job.rates, *_batch_and_noise(job))
        if key not in known:
            declared = {place: job.rates.steps_per_s[position] for place, position in places(job.rates.gpus_by_type)}
            known[key] = len(known), measured(job).with_declared(declared)
        of_job.append(known[key][0])
    return [knowledge for _, knowledge in known.values()], np.array(of_job, dtype=np.int64)


def _measured_in(rows: InputRows) -> Callable[[JobRow], Knowledge]:
    """Look up measurements by workload, before a job's own declared rates are added."""
    index = {row.id: j for j, row in enumerate(rows.types)}
    seen: dict[tuple[int, str], dict[tuple[int, int, int, int], Measurement]] = defaultdict(dict)
    for row in rows.measured_on_types:
        place = (index[row.gpu_type_id], row.gpus, row.nodes, row.batch_size)
        seen[row.team_id, row.workload][place] = row.measurement
    known: dict[tuple[Any, ...], Knowledge] = {}

    def measured(job: JobRow) -> Knowledge:
        key = (job.team_id, job.workload, *_batch_and_noise(job))
        if key not in known:
            known[key] = Knowledge.of_batches(seen[key[:2]], {}, _tuning(job, rows.noise.get(key[:2])))
        return known[key]

    return measured


def _places_in(index: Mapping[str, int]) -> Callable[[DeclaredFor], list[tuple[tuple[int, int], int]]]:
    """Look up, per declared rate of a type in the cluster, (type, GPUs) in ascending order and the rate's position."""

    @cache
    def places(declared: DeclaredFor) -> list[tuple[tuple[int, int], int]]:
        columns = [(kind, int(gpus)) for kind, *sizes in declared for gpus in sizes]
        return sorted(((index[kind], gpus), i) for i, (kind, gpus) in enumerate(columns) if kind in index)

    return places


def most_replicas(rows: InputRows, service: InService, jobs: Sequence[JobRow]) -> Floats:
    """The most replicas (m,) with a rate: measured for the workload, declared by the owner, or held now."""
    name_of = {row.id: row.name for row in rows.types}
    gangs: dict[tuple[int, str], list[tuple[str, int]]] = defaultdict(list)
    for row in rows.measured_on_types:
        gangs[row.team_id, row.workload].append((name_of[row.gpu_type_id], row.gpus))

    @cache
    def measured(team: int, workload: str, replica: GpusPerReplica) -> int:
        return _most_held(replica, gangs[team, workload])

    def most(job: JobRow) -> int:
        replica, attempt = job.gpus_per_replica, service.attempt_of.get(job.id)
        held = [(name_of[attempt.gpu_type_id], attempt.gpu_count)] if attempt else []
        declared = _most_declared(replica, job.rates.gpus_by_type)
        return max(measured(job.team_id, job.workload, replica), declared, _most_held(replica, held))

    return np.array([most(job) for job in jobs], dtype=float)


@lru_cache(maxsize=10_000)
def _most_declared(replica: GpusPerReplica, declared: DeclaredFor) -> int:
    return _most_held(replica, [(kind, int(gpus)) for kind, *sizes in declared for gpus in sizes])


def _most_held(replica: GpusPerReplica, gangs: Iterable[tuple[str, int]]) -> int:
    """The most replicas that one of these gangs, GPUs of a type, holds."""
    return max((gpus // unit for kind, gpus in gangs if (unit := replica.on(kind))), default=0)


def _batch_and_noise(job: JobRow) -> tuple[tuple[tuple[str, int], ...], float | None]:
    """What a job asks of its batch, and its own noise in steps of 10 %, so that few jobs of a workload differ."""
    tuned = bool(job.batch_size and job.noise_scale)
    return tuple(job.batch_size.items()), rounded(job.noise_scale or 1.0, NOISE_GRAIN) if tuned else None


def _tuning(job: JobRow, of_workload: tuple[float, float] | None) -> Tuning | None:
    """Batch limits and gradient noise, the job's own or else the workload's, scaled from samples to initial batches."""
    if not job.batch_size:
        return None
    asked, own = job.batch_size, _batch_and_noise(job)[1]
    limits = BatchLimits(asked["initial"], asked["max"], asked["max_per_gpu"], asked["min_per_gpu"])
    noise = (1.0, own) if own else of_workload
    return Tuning(limits, GradientNoise(noise[0], noise[1] / limits.initial) if noise else None)


def _held(rows: InputRows, service: InService, offered: Configurations, queue: Sequence[JobRow]) -> Ints:
    """The configuration (m,) that each job holds; -1: none, or one that is no longer offered."""
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


def _unlock_s(service: InService, queue: Sequence[JobRow], timing: Timing) -> Floats:
    """Seconds (m,) for which each job keeps its GPUs; 0: it holds none or may be preempted now."""
    return np.array([_lock_s(service.attempt_of.get(job.id), job, timing) for job in queue], dtype=float)


def _lock_s(attempt: AttemptRow | None, job: JobRow, timing: Timing) -> float:
    """Infinite for a job that is not preemptible; otherwise until it has run long enough to repay a restart.

    One that measures its rate may move as soon as the rate may be known. The minimum is the time lost to preemptions
    so far: a job without checkpoints then runs at least twice as long each time, and finishes.
    """
    if attempt is None:
        return 0.0
    if not job.preemptible:
        return np.inf
    ran_s = (timing.now - attempt.started_at).total_seconds() if attempt.started_at else 0.0
    least_s = timing.round_s if attempt.state in NOT_YET_RUNNING else 0.0
    min_run_s = min(timing.min_run_s, MEASUREMENT_S) if attempt.measures else timing.min_run_s
    run_s = least_run_s(round_s=timing.round_s, min_run_s=min_run_s)
    worth_s = max(run_s, job.work_lost_gpu_s / attempt.gpu_count)
    return max(worth_s - ran_s, least_s)
