"""What a job that is not submitted yet would get: per GPU type its speed, its cost, and whether it could start now.

The rates are those that a round would count on, from the same code; the room is what the claims leave. A few queries,
however many jobs there are.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count, F, Sum
from django.utils import timezone

from allocation.configurations import Configurations, gang_sizes
from cluster_app.models import Gpu, GpuType, Node
from estimation.rates import Source
from jobs_app.admission import Admitted
from jobs_app.models import Attempt, Job, Team, Throughput
from jobs_app.queueing import draft
from jobs_app.submission import admitted
from scheduler_app.bids import InService, Timing, bids_of
from scheduler_app.models import GpuClaim
from scheduler_app.reading import MEASURED, Declared, JobRow, Rows, TypeRow, noise_of

NOTHING_HELD = InService([], [], [], {})


@dataclass(frozen=True)
class NodeRoom:
    """A node in service: its GPUs, and what of it nobody holds."""

    gpu_type_id: int
    gpus: int
    free_gpus: int
    free_cpus: int
    free_memory_mib: int

    def slots(self, job: JobRow) -> int:
        """How many of the job's GPUs it could serve now."""
        by_cpus = self.free_cpus // job.cpus_per_gpu if job.cpus_per_gpu else self.free_gpus
        by_memory = self.free_memory_mib // job.memory_per_gpu_mib if job.memory_per_gpu_mib else self.free_gpus
        return max(0, min(self.free_gpus, by_cpus, by_memory))


@dataclass(frozen=True)
class Option:
    """One way to run the job; rates in steps/s, costs in the currency of the GPU types' prices."""

    gpu_type: str
    gpus: int
    nodes: int
    rate: float | None
    source: str | None
    cost_per_hour: float
    run_seconds: float | None
    """None while the number of steps is not known."""
    cost: float | None
    can_start_now: bool
    free_gpus: int
    reason: str
    """Why not now, or why never."""
    preferred: bool = False
    """The fastest."""


@dataclass(frozen=True)
class Facts:
    """What the cluster says of itself."""

    types: Sequence[TypeRow]
    rooms: Sequence[NodeRoom]
    measured: list[tuple[Any, ...]]
    noise: Mapping[tuple[int, str], tuple[float, float]]
    quota: str
    """Why the team's limits keep the job from starting now; empty if they do not."""

    def rooms_of(self, kind: TypeRow) -> list[NodeRoom]:
        return [room for room in self.rooms if room.gpu_type_id == kind.id]


def outlook_of(data: Any, *, owner: User) -> dict[str, Any]:
    """The plan for this spec, or `InvalidSpec` with every fault, as when it is submitted. Writes nothing."""
    return outlook_of_admitted(admitted(data, owner))


def outlook_of_admitted(asked: Admitted) -> dict[str, Any]:
    """The same for a spec that was found good already."""
    job = _row_of(draft(asked))
    options = options_of(job, read_facts(job, asked.team))
    return {
        "valid": True,
        "options": [asdict(option) for option in options],
        "note": _note(options, asked),
    }


def options_of(job: JobRow, facts: Facts) -> list[Option]:
    """Every GPU type: those that would do, the fastest first, then those that would not. Pure."""
    offered = _offered(job, facts)
    rate, source = _rates(job, facts, offered)
    able = [
        _option(job, facts, offered, k, rate=rate[k], source=Source(source[k]).name.lower())
        for k in range(len(offered.nodes))
        if rate[k] > 0
    ]
    able = _least_and_fastest(able)
    able.sort(key=lambda option: (-(option.rate or 0), option.cost_per_hour))
    named = {option.gpu_type for option in able}
    unable = [_never(job, kind, facts) for kind in facts.types if kind.name not in named]
    return [_preferred(option, first=n == 0) for n, option in enumerate(able)] + unable


def _offered(job: JobRow, facts: Facts) -> Configurations:
    sizes = gang_sizes(job.gpus_min, job.gpus_max)
    node_gpus = [[room.gpus for room in facts.rooms_of(kind)] for kind in facts.types]
    even, uneven = ((), sizes) if job.uneven_gang else (sizes, ())
    return Configurations.of(node_gpus, even, uneven=uneven)


def _least_and_fastest(options: Sequence[Option]) -> list[Option]:
    """Of an elastic job, per GPU type, the least gang and the one that gets most done."""
    kept: dict[tuple[str, int], Option] = {}
    for kind in dict.fromkeys(option.gpu_type for option in options):
        of_kind = [option for option in options if option.gpu_type == kind]
        for option in (min(of_kind, key=lambda o: o.gpus), max(of_kind, key=lambda o: o.rate or 0)):
            kept[kind, option.gpus] = option
    return list(kept.values())


def _rates(job: JobRow, facts: Facts, offered: Configurations) -> tuple[list[float], list[int]]:
    rows = Rows(
        types=list(facts.types),
        nodes=[],
        gpus=[],
        holders={},
        heirs={},
        attempts={},
        jobs=[job],
        waiting_for={},
        teams={},
        measured=facts.measured,
        noise=facts.noise,
        received=[],
    )
    now = timezone.now()
    bids = bids_of(rows, NOTHING_HELD, offered, [job], Timing(now, 0.0, 0.0, now))
    return bids.rate[0].tolist(), bids.source[0].tolist()


def _option(job: JobRow, facts: Facts, offered: Configurations, k: int, *, rate: float, source: str) -> Option:
    kind = facts.types[int(offered.gpu_type[k])]
    gpus, nodes = int(offered.gpus[k]), int(offered.nodes[k])
    rooms = facts.rooms_of(kind)
    reason = facts.quota or why_not_now(job, rooms, gpus=gpus, nodes=nodes)
    hourly = gpus * float(kind.price_per_hour)
    run_s = job.total_steps / rate if job.total_steps else None
    return Option(
        gpu_type=kind.name,
        gpus=gpus,
        nodes=nodes,
        rate=rate,
        source=source,
        cost_per_hour=hourly,
        run_seconds=run_s,
        cost=None if run_s is None else hourly * run_s / 3600,
        can_start_now=not reason,
        free_gpus=sum(room.free_gpus for room in rooms),
        reason=reason,
    )


def why_not_now(job: JobRow, rooms: Iterable[NodeRoom], *, gpus: int, nodes: int) -> str:
    """What keeps a gang from starting on the GPUs that nobody holds; empty if nothing does."""
    listed = list(rooms)
    free, slots = sum(room.free_gpus for room in listed), [room.slots(job) for room in listed]
    if free < gpus:
        return f"{free} of {gpus} GPUs free"
    if sum(slots) < gpus:
        return f"{free} GPUs free, but CPUs or memory beside them for {sum(slots)} of {gpus}"
    if job.uneven_gang or sum(slot >= gpus // nodes for slot in slots) >= nodes:
        return ""
    return f"{free} GPUs free, but scattered: it needs {gpus // nodes} on each of {nodes} node{'s' * (nodes > 1)}"


def _never(job: JobRow, kind: TypeRow, facts: Facts) -> Option:
    rooms = facts.rooms_of(kind)
    free = sum(room.free_gpus for room in rooms)
    reason = _why_never(job, kind, rooms)
    return Option(kind.name, job.gpus_min, 0, None, None, 0.0, None, None, False, free, reason)


def _why_never(job: JobRow, kind: TypeRow, rooms: Sequence[NodeRoom]) -> str:
    if job.gpu_types and kind.name not in job.gpu_types:
        return "not among the GPU types that the job allows"
    if not rooms:
        return "no node of this type is in service"
    if kind.memory_mib < job.gpu_memory_mib:
        return f"has {kind.memory_mib} MiB of memory, the job asks for {job.gpu_memory_mib}"
    return f"the nodes in service hold no gang of {job.gpus_min}"


def _preferred(option: Option, *, first: bool) -> Option:
    return Option(**(asdict(option) | {"preferred": first}))


def _note(options: Sequence[Option], asked: Admitted) -> str:
    said = _outlook(options, len(asked.needs))
    if asked.array is None:
        return f"{said[0].upper()}{said[1:]}"
    return f"Each of the {asked.array['end'] - asked.array['start'] + 1} members: {said}"


def _outlook(options: Sequence[Option], needs: int) -> str:
    now = dict.fromkeys(option.gpu_type.upper() for option in options if option.can_start_now)
    if needs:
        return f"it waits for {needs} other job{'s' * (needs > 1)} first."
    if now:
        return f"there is room now on {', '.join(now)}; who else waits decides with it."
    return "there is no room now: it waits until GPUs come free, or a policy that stops jobs makes room."


# -- reading -----------------------------------------------------------------------------------------------------


def read_facts(job: JobRow, team: Team) -> Facts:
    """Six queries, one more where the batch is tuned; none of them looks at the queue."""
    types = [TypeRow(*row) for row in GpuType.objects.order_by("name").values_list(*TypeRow._fields)]
    measured = Throughput.objects.filter(team=team, workload=job.workload).values_list(*MEASURED)
    noise = noise_of([job.workload] if job.batch_size else [])
    return Facts(types, read_rooms(), list(measured), noise, _quota(job, team))


def read_rooms() -> list[NodeRoom]:
    healthy = Gpu.objects.present().filter(healthy=True, node__in=Node.objects.schedulable())
    gpus = dict(healthy.order_by().values_list("node").annotate(Count("pk")))
    held: Mapping[int, tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0), _held_by_node())
    nodes = Node.objects.schedulable().values_list("pk", "gpu_type_id", "cpus", "memory_mib")
    return [
        NodeRoom(kind, gpus[pk], gpus[pk] - held[pk][0], cpus - held[pk][1], memory - held[pk][2])
        for pk, kind, cpus, memory in nodes
        if pk in gpus
    ]


def _held_by_node() -> dict[int, tuple[int, int, int]]:
    """Node → GPUs, CPUs and MiB that attempts hold or await there."""
    claims = GpuClaim.objects.open().filter(gpu__present=True, gpu__healthy=True).order_by().values("gpu__node")
    sums = claims.annotate(
        gpus=Count("gpu", distinct=True),
        cpus=Sum(F("attempt__job__cpus_per_gpu")),
        memory=Sum(F("attempt__job__memory_per_gpu_mib")),
    )
    return {row["gpu__node"]: (row["gpus"], row["cpus"], row["memory"]) for row in sums}


def _quota(job: JobRow, team: Team) -> str:
    live = Attempt.objects.live().filter(job__team=team)
    for cap, attempts, whose in (
        (team.max_gpus, live, f"team {team}"),
        (team.max_gpus_per_member, live.filter(job__owner=job.owner_id), f"you in team {team}"),
    ):
        used = attempts.aggregate(used=Sum("gpu_count"))["used"] or 0 if cap is not None else 0
        if cap is not None and used + job.gpus_min > cap:
            return f"{whose} may use {cap} GPUs at once and {used} are in use"
    return ""


def _row_of(job: Job) -> JobRow:
    """As a round would read it."""
    columns: dict[str, Any] = {name: getattr(job, name, None) for name in JobRow._fields}
    return JobRow(**columns | {"rates": Declared.of(job.rates)})
