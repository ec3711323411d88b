"""Detection of slow GPUs by the progress of jobs that ran on them, every ten minutes; stored with the GPU."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import log
from typing import Any, NamedTuple

import numpy as np

from cluster_app.models import Engine, Gpu, NodeEvent, slowness_in_words
from database.bulk_insert import insert_many
from database.bulk_update import rewrite
from estimation.gpu_speeds import GpuRuns, gpu_speeds
from jobs_app.models import Attempt, GpuClaim
from jobs_app.models.attempt import OF_MEASURED_RATE

EVERY_S = 600
WINDOW = timedelta(days=30)
MOST_RUNS = 5_000
"""The newest, so that a round of this work stays below a second."""
LEAST_REPORTS = 5
LEAST_RUN = timedelta(minutes=1)
"""Between the first and the last report of a run: in less, the first steps count too much."""
TOLD = ("slower_by", "slower_by_jobs", "slower_together")


class Slowness(NamedTuple):
    """The columns `TOLD` of a GPU."""

    part: float = 0.0
    jobs: int = 0
    together: int = 1

    @property
    def words(self) -> str:
        return slowness_in_words(*self)


class Run(NamedTuple):
    """An attempt that measured a rate."""

    group: tuple[object, ...]
    """What attempts with equal rates have in common: team, workload, type, GPUs, nodes, batch size, CPUs and memory."""
    job: object
    log_rate: float
    gpus: Sequence[int]


@dataclass(frozen=True)
class KnownSpeed:
    """A GPU of a real node, with what is stored of its speed."""

    pk: int
    node_id: int
    index: int
    node: str
    engine: str
    slower_by: float
    slower_by_jobs: int
    slower_together: int
    speed_since: datetime | None

    @property
    def told(self) -> Slowness:
        return Slowness(self.slower_by, self.slower_by_jobs, self.slower_together)


def is_due(before: datetime, now: datetime) -> bool:
    """Whether a whole multiple of ten minutes lies between the two times."""
    return before.timestamp() // EVERY_S != now.timestamp() // EVERY_S


def note_gpu_speeds(now: datetime) -> None:
    """Store by how much each slow GPU is slower than its type, with an event of its node for each change."""
    gpus = _gpus()
    slower = slower_by(gpus, list(_runs(gpus, now)))
    changed = {gpu: told for gpu, told in slower.items() if told != gpu.told}
    rewrite(Gpu, TOLD, {gpu.pk: told for gpu, told in changed.items()})
    insert_many(NodeEvent, list(_events(changed, Counter(gpu.node_id for gpu in gpus))))


def slower_by(gpus: Sequence[KnownSpeed], runs: Sequence[Run]) -> dict[KnownSpeed, Slowness]:
    """GPU → the fraction by which it is slower than its type, in whole per cents, and the evidence."""
    place = {gpu.pk: number for number, gpu in enumerate(gpus)}
    speeds = gpu_speeds(_columns(runs, place))
    parts = (
        speeds.slower_by(np.array([gpu.slower_by > 0 for gpu in gpus], dtype=np.bool_)).round(2).clip(0, 0.99).tolist()
    )
    jobs, alike = speeds.jobs.tolist(), speeds.together.tolist()
    together = Counter((gpu.node_id, alike[n]) for n, gpu in enumerate(gpus))
    return {
        gpu: Slowness(parts[n], jobs[n], together[gpu.node_id, alike[n]]) if parts[n] else Slowness()
        for n, gpu in enumerate(gpus)
    }


def _columns(runs: Sequence[Run], place: Mapping[int, int]) -> GpuRuns:
    groups = {group: number for number, group in enumerate(dict.fromkeys(run.group for run in runs))}
    jobs = {job: number for number, job in enumerate(dict.fromkeys(run.job for run in runs))}
    return GpuRuns(
        log_rate=np.array([run.log_rate for run in runs], dtype=float),
        group=np.array([groups[run.group] for run in runs], dtype=np.int64),
        job=np.array([jobs[run.job] for run in runs], dtype=np.int64),
        run=np.repeat(np.arange(len(runs)), [len(run.gpus) for run in runs]),
        gpu=np.array([place[gpu] for run in runs for gpu in run.gpus], dtype=np.int64),
        gpus=len(place),
    )


def _gpus() -> list[KnownSpeed]:
    """GPUs of real nodes; the speed of an emulated one is set."""
    rows = Gpu.objects.present().filter(node__emulated=False).order_by("pk")
    columns = ("pk", "node_id", "index", "node__name", "node__engine__name", *TOLD, "speed_since")
    return [KnownSpeed(*row) for row in rows.values_list(*columns)]


def _runs(gpus: Iterable[KnownSpeed], now: datetime) -> Iterator[Run]:
    """Attempts with a measured rate whose GPUs are known, the newest first."""
    known = {gpu.pk: gpu for gpu in gpus}
    attempts = _attempts(now) if known else []
    held = _gpus_held(attempts, known.values())
    for attempt in attempts:
        members, began, rate = held.get(attempt.pk, ()), attempt.started_at, attempt.measured_rate
        whole = len(members) == attempt.gpu_count and known.keys() >= set(members)
        if rate and began and whole and all(_tells(known[gpu], began) for gpu in members):
            yield Run(_group_of(attempt), attempt.job_id, log(rate), members)


def _tells(gpu: KnownSpeed, began: datetime) -> bool:
    """Whether a run at that time used the GPU that is in this slot now."""
    return gpu.speed_since is None or began >= gpu.speed_since


def _attempts(now: datetime) -> list[Attempt]:
    """Attempts of one batch: the rate of another batch tells nothing of a GPU."""
    told = Attempt.objects.filter(reports__gte=LEAST_REPORTS, step_at__isnull=False, first_step_at__isnull=False)
    told = told.filter(batch_changes=0)
    columns = ("job", "gpu_type", "gpu_count", "nodes", "engine", "devices", "batch_size", "started_at")
    more = ("cpus_per_gpu", "memory_per_gpu_mib", *OF_MEASURED_RATE)
    rows = told.select_related("job").only(*columns, *more, "job__team", "job__workload")
    live = rows.exclude(state=Attempt.State.ENDED).order_by("-pk")[:MOST_RUNS]
    ended = rows.filter(ended_at__gt=now - WINDOW).order_by("-ended_at")[:MOST_RUNS]
    found = [one for one in (*live, *ended) if one.step_at - one.first_step_at >= LEAST_RUN]
    return found[:MOST_RUNS]


def _group_of(attempt: Attempt) -> tuple[object, ...]:
    where = (attempt.gpu_type_id, attempt.gpu_count, len(attempt.nodes))
    return (
        *(attempt.job.team_id, attempt.job.workload, *where),
        *(attempt.batch_size, attempt.cpus_per_gpu, attempt.memory_per_gpu_mib),
    )


def _gpus_held(attempts: Iterable[Attempt], gpus: Iterable[KnownSpeed]) -> dict[int, list[int]]:
    """Attempt → its GPUs: as claimed, or as reported by a site that assigns GPUs itself."""
    of_site = set(Engine.objects.filter(kind=Engine.Kind.SLURM).values_list("name", flat=True))
    local = [attempt.pk for attempt in attempts if attempt.engine not in of_site]
    held: dict[int, list[int]] = {}
    for attempt, gpu in GpuClaim.objects.filter(attempt__in=local).order_by("gpu").values_list("attempt", "gpu"):
        held.setdefault(attempt, []).append(gpu)
    slots = {(gpu.node, gpu.index): gpu.pk for gpu in gpus}
    for one in attempts:
        if one.engine in of_site:
            held[one.pk] = [slots[slot] for slot in device_slots(one.devices) if slot in slots]
    return held


def device_slots(devices: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Node and index of each GPU that a site chose, as Slurm writes them: `{"n1": "0-1,3"}`."""
    for node, numbers in devices.items():
        for span in numbers.split(","):
            first, _, last = span.partition("-")
            if first.isdigit() and (last or first).isdigit():
                yield from ((node, index) for index in range(int(first), int(last or first) + 1))


def _events(changed: Mapping[KnownSpeed, Slowness], of_node: Mapping[int, int]) -> Iterator[dict[str, Any]]:
    """Events of GPUs whose slowness has changed; one event for GPUs that cannot be told apart.

    of_node: node → its GPUs.
    """
    alike: dict[tuple[int, Slowness, int], list[int]] = defaultdict(list)
    for gpu, now in changed.items():
        if bool(now.part) != bool(gpu.slower_by) or now.together < gpu.slower_together:
            apart = gpu.index if (now if now.part else gpu.told).together == 1 else -1
            alike[gpu.node_id, now, apart].append(gpu.index)
    for (node, now, _), indexes in alike.items():
        for message in _messages(sorted(indexes), now, whole=len(indexes) == of_node[node] > 1):
            yield {"node_id": node, "kind": NodeEvent.Kind.SPEED, "message": message}


def _messages(indexes: Sequence[int], now: Slowness, *, whole: bool) -> list[str]:
    """Messages on GPUs of a node that the same jobs used, and that cannot be told apart."""
    what = f"is {now.words}" if now.part else "is as fast as its kind again"
    if whole:
        return [f"The node {what}"]
    if now.together > 1:
        return [f"One of the GPUs {', '.join(map(str, indexes))} {what}"]
    return [f"GPU {index} {what}" for index in indexes]
