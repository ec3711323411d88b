"""Dry run of a job: per GPU type its throughput and cost, and whether it could start now. Writes nothing.

Throughputs come from the same code as in a round.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
from django.contrib.auth.models import User
from django.utils import timezone

from accounting_app.fairness.budgets import TeamBudget
from allocation.configurations import Configurations
from allocation.gangs import holds_equal_parts, servable_gpus
from allocation.types import Floats
from cluster_app.storage import PLACES, WORDS
from estimation.rates import Source
from insight_app.explain.cost_and_time import UNKNOWN, UNKNOWN_RATE, Candidate, Length, cost_and_time, estimated_length
from insight_app.explain.dry_run_inputs import DryRunInputs, FreeOnNode, read_inputs, row_of
from jobs_app.models.attempt import told_rate
from jobs_app.submission.admission import Admitted
from jobs_app.submission.enqueue import draft
from jobs_app.submission.submit import admitted
from scheduler_app.round.candidate_jobs import InService
from scheduler_app.round.inputs import (
    InputRows,
    JobRow,
    TypeRow,
)
from scheduler_app.round.job_options import Timing, gangs_on, job_options_of, knowledge_of, units_of

NEAR_WINDOW = timedelta(days=1)
"""Windows that begin later are not mentioned."""
RATE_NOT_KNOWN = (
    " How fast it runs is not known before it has reported progress, unless it declares rates: until then GPU types "
    "are compared by their specifications, and by what other jobs gain from them."
)
ASSUMED = Source.ASSUMED.name.lower()
NOTHING_HELD = InService([], [], [], {})


@dataclass(frozen=True)
class PlanOption:
    """One way to run the job; rates in steps/s, costs in the currency of the GPU types' prices."""

    gpu_type: str
    gpus: int
    replicas: int
    """As many as GPUs, unless a replica takes several."""
    nodes: int
    rate: float | None
    """None if it cannot run so (on no nodes), or if no rate of its workload is known."""
    source: str | None
    cost_per_hour: float
    run_seconds: float | None
    """None if the number of steps is unknown, or the rate."""
    cost: float | None
    can_start_now: bool
    free_gpus: int
    reason: str
    """Why it cannot start now, or not at all; empty if it can."""
    preferred: bool = False
    """Whether it is the fastest."""


class Rated(NamedTuple):
    """The configurations that nodes in service offer, with the job's rate in steps/s on each and its source (K,)."""

    offered: Configurations
    rate: Floats
    """0 where it cannot run."""
    source: Sequence[int]
    known: bool
    """Whether any rate of the workload is known; if not, only the ratios between configurations mean something."""


def dry_run(data: Any, *, owner: User) -> dict[str, Any]:
    """Plan of the job that this spec describes; raises `InvalidSpec` with all faults, as submission does."""
    return dry_run_of_admitted(admitted(data, owner, administrator=owner.is_staff))


def dry_run_of_admitted(asked: Admitted) -> dict[str, Any]:
    """Plan of a job whose spec has been admitted."""
    job = row_of(draft(asked))
    inputs = read_inputs(job, asked.team)
    rated = _rated(job, inputs)
    length = _length(job, inputs, rated, asked.owner)
    return _plan(asked, job, inputs, able=_able(job, inputs, rated), known=rated.known, length=length)


def _plan(
    asked: Admitted,
    job: JobRow,
    inputs: DryRunInputs,
    *,
    able: Sequence[PlanOption],
    known: bool,
    length: Length | None,
) -> dict[str, Any]:
    """Options, notes and costs, as of the time at which the draft was made. Pure."""
    options = _options_of(job, inputs, able)
    note = _note(options, asked, inputs.budget) + _note_of_window(job, options, inputs, job.created_at)
    return {
        "valid": True,
        "options": [asdict(_told(option) if known else _without_rate(option)) for option in options],
        "note": note if known or not able else note + RATE_NOT_KNOWN,
        "cost_and_time": cost_and_time(
            _candidates(able),
            length,
            unknown=UNKNOWN_RATE if job.total_steps else UNKNOWN,
            others_wait_h=inputs.others_wait_h(job.created_at),
        ),
    }


def _told(option: PlanOption) -> PlanOption:
    """The option with its rate in as many digits as its source has."""
    if option.rate is None or option.source is None:
        return option
    return replace(option, rate=told_rate(option.rate, option.source))


def _without_rate(option: PlanOption) -> PlanOption:
    """The option of a job whose rate is not known; its place among the others is what is assumed of GPU types."""
    return replace(option, rate=None, source=option.source and ASSUMED, run_seconds=None, cost=None)


def _candidates(able: Sequence[PlanOption]) -> list[Candidate]:
    """Input of `cost_and_time`: all gangs on which the job has a rate, the fastest first. Pure."""
    return [Candidate(one.gpu_type, one.gpus, one.rate or 0, one.cost_per_hour) for one in able]


def _able(job: JobRow, inputs: DryRunInputs, rated: Rated) -> list[PlanOption]:
    """Feasible configurations of the job, the fastest first. Pure."""
    able = [
        _option(job, inputs, rated.offered, k, rate=float(rate), source=Source(rated.source[k]).name.lower())
        for k, rate in enumerate(rated.rate)
        if rate > 0
    ]
    return sorted(able, key=_fastest_first)


def _fastest_first(option: PlanOption) -> tuple[float, float]:
    return -(option.rate or 0), option.cost_per_hour


def _options_of(job: JobRow, inputs: DryRunInputs, able: Sequence[PlanOption]) -> list[PlanOption]:
    """Options for every GPU type: possible ones, the fastest first, then impossible ones. Pure."""
    shown = sorted(_smallest_and_fastest(able), key=_fastest_first)
    named = {option.gpu_type for option in able}
    unable = [_unable(job, kind, inputs) for kind in inputs.types if kind.name not in named]
    return [_preferred(option, first=n == 0) for n, option in enumerate(shown)] + unable


def _length(job: JobRow, inputs: DryRunInputs, rated: Rated, owner: User) -> Length | None:
    if job.total_steps:
        return Length(job.total_steps) if rated.known else None
    if inputs.estimator is None:
        return None
    capacity = np.array([sum(node.gpus for node in inputs.nodes_of(kind)) for kind in inputs.types], dtype=np.int64)
    return estimated_length(
        job,
        inputs.estimator,
        rate=rated.rate,
        usage=rated.offered.usage,
        capacity=capacity,
        units=units_of(inputs.types, [job])[0],
        owner=owner.get_username(),
    )


def _offered(job: JobRow, inputs: DryRunInputs) -> Configurations:
    sizes = sorted({size for kind in inputs.types for size in gangs_on(job, kind.name)})
    node_gpus = [[node.gpus for node in inputs.nodes_of(kind)] for kind in inputs.types]
    even, uneven = ((), sizes) if job.uneven_gang else (sizes, ())
    engines = [[node.engine for node in inputs.nodes_of(kind)] for kind in inputs.types]
    return Configurations.of(node_gpus, even, uneven=uneven, domains=engines)


def _holds(job: JobRow, inputs: DryRunInputs, offered: Configurations, k: int) -> bool:
    """Whether the nodes with the job's storage, all of them empty, hold the configuration."""
    gpus = [node.gpus for node in inputs.with_storage(inputs.types[int(offered.gpu_type[k])])]
    gang, nodes = int(offered.gpus[k]), int(offered.nodes[k])
    return sum(gpus) >= gang if job.uneven_gang else holds_equal_parts(gpus, gang, nodes)


def _smallest_and_fastest(options: Sequence[PlanOption]) -> list[PlanOption]:
    """Per GPU type, the smallest gang and the fastest one of an elastic job."""
    kept: dict[tuple[str, int], PlanOption] = {}
    for kind in dict.fromkeys(option.gpu_type for option in options):
        of_kind = [option for option in options if option.gpu_type == kind]
        for option in (min(of_kind, key=lambda o: o.gpus), max(of_kind, key=lambda o: o.rate or 0)):
            kept[kind, option.gpus] = option
    return list(kept.values())


def _rated(job: JobRow, inputs: DryRunInputs) -> Rated:
    offered = _offered(job, inputs)
    rate, source, known = _rates(job, inputs, offered)
    holds = [_holds(job, inputs, offered, k) for k in range(len(rate))]
    return Rated(offered, np.where(holds, rate, 0), source, known)


def _rates(job: JobRow, inputs: DryRunInputs, offered: Configurations) -> tuple[Floats, list[int], bool]:
    """Rates and sources (K,), and whether any rate of the workload is known."""
    anywhere = job._replace(mounts=[], image="", volunteers=())  # there are no nodes in these rows
    rows = InputRows(
        types=list(inputs.types),
        nodes=[],
        gpus=[],
        holders={},
        waiting_claims={},
        attempts={},
        jobs=[anywhere],
        waiting_for={},
        begin_times={},
        teams={},
        backlog_s={},
        measured=inputs.measured,
        noise=inputs.noise,
        received=[],
        ran={},
        busy_in_arrays={},
        known_rates=inputs.known_rates,
    )
    now = timezone.now()
    options = job_options_of(rows, NOTHING_HELD, offered, [anywhere], Timing(now, 0.0, 0.0, now))
    (knowledge,), _ = knowledge_of(rows, [anywhere])
    return options.rate[0], options.source[0].tolist(), knowledge.is_known


def _option(
    job: JobRow, inputs: DryRunInputs, offered: Configurations, k: int, *, rate: float, source: str
) -> PlanOption:
    kind = inputs.types[int(offered.gpu_type[k])]
    gpus, nodes = int(offered.gpus[k]), int(offered.nodes[k])
    free_on = inputs.with_storage(kind)
    reason = inputs.quota or inputs.quota_on(kind, gpus) or reason_not_now(job, free_on, gpus=gpus, nodes=nodes)
    hourly = gpus * float(kind.price_per_hour)
    run_s = job.total_steps / rate if job.total_steps else None
    return PlanOption(
        gpu_type=kind.name,
        gpus=gpus,
        replicas=gpus // job.gpus_per_replica.on(kind.name),
        nodes=nodes,
        rate=rate,
        source=source,
        cost_per_hour=hourly,
        run_seconds=run_s,
        cost=None if run_s is None else hourly * run_s / 3600,
        can_start_now=not reason,
        free_gpus=sum(node.free_gpus for node in free_on),
        reason=reason,
    )


def reason_not_now(job: JobRow, free_on: Iterable[FreeOnNode], *, gpus: int, nodes: int) -> str:
    """Why a gang cannot start on the free GPUs now; empty if it can."""
    listed = list(free_on)
    free, slots = sum(node.free_gpus for node in listed), _slots(job, listed)
    if free < gpus:
        return f"{free} of {gpus} GPUs free"
    if sum(slots) < gpus:
        return f"{free} GPUs free, but enough CPUs and memory for only {sum(slots)} of {gpus}"
    if not (job.uneven_gang or holds_equal_parts(slots, gpus, nodes)):
        return _fragmented(free, gpus=gpus, nodes=nodes)
    at_one = [
        [slot for slot, its in zip(slots, listed, strict=True) if its.engine == name] for name in _engines(listed)
    ]
    if any(sum(its) >= gpus if job.uneven_gang else holds_equal_parts(its, gpus, nodes) for its in at_one):
        return ""
    return f"{free} GPUs free, but at several engines: a gang runs at one"


def _engines(nodes: Iterable[FreeOnNode]) -> set[str]:
    return {node.engine for node in nodes}


def _fragmented(free: int, *, gpus: int, nodes: int) -> str:
    return f"{free} GPUs free, but fragmented: the job needs {gpus // nodes} on each of {nodes} node{'s' * (nodes > 1)}"


def _slots(job: JobRow, nodes: Sequence[FreeOnNode]) -> list[int]:
    """Number of the job's GPUs that each node could serve now."""
    servable: list[int] = servable_gpus(
        [node.free_gpus for node in nodes],
        [node.free_cpus for node in nodes],
        [node.free_memory_mib for node in nodes],
        cpus_per_gpu=job.cpus_per_gpu,
        memory_per_gpu_mib=job.memory_per_gpu_mib,
    ).tolist()
    return servable


def _unable(job: JobRow, kind: TypeRow, inputs: DryRunInputs) -> PlanOption:
    nodes = inputs.nodes_of(kind)
    free = sum(node.free_gpus for node in nodes)
    reason = _reason_never(job, kind, nodes)
    replicas = job.gpus_per_replica.replicas(job.gpus_min, job.gpus_max)[0]
    gpus = replicas * job.gpus_per_replica.on(kind.name)
    return PlanOption(kind.name, gpus, replicas, 0, None, None, 0.0, None, None, False, free, reason)


def _reason_never(job: JobRow, kind: TypeRow, nodes: Sequence[FreeOnNode]) -> str:
    if job.gpu_types and kind.name not in job.gpu_types:
        return "not allowed by the job"
    if not nodes:
        return "no node of this type is in service"
    if not any(node.has_storage for node in nodes):
        things = [name for name in job.needs if name not in PLACES]
        missing = [WORDS.get(name, f"the storage {name}") for name in things or job.needs]
        return f"no node of this type in service has {' and '.join(missing)}"
    if kind.memory_mib < job.gpu_memory_mib:
        return f"has {kind.memory_mib} MiB of memory; the job needs {job.gpu_memory_mib} MiB"
    replica, (replicas, _) = job.gpus_per_replica, job.gpus_per_replica.replicas(job.gpus_min, job.gpus_max)
    if replica.several:
        return f"no gang of {replica.words(replicas, kind.name)} fits on the nodes in service"
    return f"no gang of {job.gpus_min} fits on the nodes in service"


def _preferred(option: PlanOption, *, first: bool) -> PlanOption:
    return PlanOption(**(asdict(option) | {"preferred": first}))


def _note(options: Sequence[PlanOption], asked: Admitted, budget: TeamBudget | None) -> str:
    said, warning = _can_start(options, len(asked.needs), asked.columns.get("begin_time")), budget and budget.warning
    if budget and budget.stops_starts:
        return budget.warning
    if asked.array is None:
        note = f"{said[0].upper()}{said[1:]}"
    else:
        note = f"Each of the {asked.array['end'] - asked.array['start'] + 1} members: {said}"
    return f"{note} {warning}" if warning else note


def _can_start(options: Sequence[PlanOption], needs: int, begin_time: datetime | None) -> str:
    now = dict.fromkeys(option.gpu_type.upper() for option in options if option.can_start_now)
    if needs:
        return f"the job first waits for {needs} other job{'s' * (needs > 1)}."
    if begin_time:
        return f"the job is not started before {begin_time.astimezone(UTC):%F %H:%M} UTC, its begin time."
    if now:
        return f"GPUs are free now on {', '.join(now)}; other waiting jobs may take them first."
    return "no suitable GPUs are free now: the job waits until some are released or preempted."


def _note_of_window(job: JobRow, options: Sequence[PlanOption], inputs: DryRunInputs, now: datetime) -> str:
    """Note of the next window that closes nodes to the job; empty if none begins within a day."""
    able = {option.gpu_type for option in options if option.rate}
    its_types = {kind.id for kind in inputs.types if kind.name in able}
    nodes = {node.id for node in inputs.nodes if node.gpu_type_id in its_types}
    near = (
        row
        for row in inputs.windows
        if row.team_id != job.team_id and row.begins_at < now + NEAR_WINDOW and nodes & row.nodes
    )
    first = next(near, None)
    if first is None:
        return ""
    closed = len(nodes & first.nodes)
    where = f"the {closed} nodes" if closed > 1 else "the node"
    words = f"{first.words[0].upper()}{first.words[1:]}"
    return f" {words}. On {where} concerned the job starts only if it ends before or can be stopped in time."
