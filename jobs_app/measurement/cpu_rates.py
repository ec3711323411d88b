"""Measured rates by CPUs per GPU: of attempts to which a round gave CPUs, a mean for each workload, gang and number."""

from collections import Counter
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from database.bulk_update import rewrite
from jobs_app.models import CpuRate

MOST_POINTS = 32
"""Numbers of CPUs and batch sizes kept per gang of a workload."""


class CpuRateKey(NamedTuple):
    """Unique key of a `CpuRate` row."""

    team: int
    workload: str
    gpu_type: int
    gpus: int
    nodes: int
    cpus_per_gpu: int
    batch_size: int


class CpuNews(NamedTuple):
    """A rate since the last report, and the number of reports behind it."""

    key: CpuRateKey
    steps_per_s: float
    reports: int


def learn_cpu_rates(news: Iterable[CpuNews]) -> None:
    """Merge the rates into the stored means, in bulk."""
    listed = list(news)
    if not listed:
        return
    known = _known({one.key for one in listed})
    for one in listed:
        if one.key in known:
            known[one.key].add(rate=one.steps_per_s, reports=one.reports)
    old = {rate.pk: (rate.steps_per_second, rate.spread, rate.reports) for rate in known.values() if rate.pk}
    rewrite(CpuRate, ("steps_per_second", "spread", "reports"), old)
    CpuRate.objects.bulk_create([rate for rate in known.values() if not rate.pk])


def _known(keys: AbstractSet[CpuRateKey]) -> dict[CpuRateKey, CpuRate]:
    """Stored or new row of each key, up to `MOST_POINTS` per gang."""
    rows = CpuRate.objects.filter(team__in={key.team for key in keys}, workload__in={key.workload for key in keys})
    found = {
        CpuRateKey(r.team_id, r.workload, r.gpu_type_id, r.gpus, r.nodes, r.cpus_per_gpu, r.batch_size): r for r in rows
    }
    points = Counter(key[:5] for key in found)
    known = {key: rate for key, rate in found.items() if key in keys}
    for key in sorted(keys - known.keys()):
        if points[key[:5]] < MOST_POINTS:
            points[key[:5]] += 1
            known[key] = _blank(key)
    return known


def _blank(key: CpuRateKey) -> CpuRate:
    return CpuRate(
        team_id=key.team,
        workload=key.workload,
        gpu_type_id=key.gpu_type,
        gpus=key.gpus,
        nodes=key.nodes,
        cpus_per_gpu=key.cpus_per_gpu,
        batch_size=key.batch_size,
        steps_per_second=0.0,
    )
