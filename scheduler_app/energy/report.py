"""Report on energy per GPU type: nodes, demand and its forecast, which nodes could sleep, and the power that saves."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count

from allocation.node_sleep import nodes_to_sleep
from cluster_app.models import Gpu, GpuType
from scheduler_app.energy.advice import HORIZONS
from scheduler_app.energy.idle_nodes import IdleNode, nodes_that_may_sleep, read_idle_nodes
from scheduler_app.energy.node_use import STEP_H, NodeCounts, node_counts
from scheduler_app.models import SleepAdvice

HORIZONS_H = tuple(horizon * STEP_H for horizon in HORIZONS)
NO_NODES = NodeCounts(0, 0)


@dataclass(frozen=True)
class ForecastMean:
    """Mean number of nodes in use over the next hours."""

    hours: float
    nodes: float


@dataclass(frozen=True)
class TypeEnergy:
    """Of one GPU type. Powers are of whole nodes, in W."""

    gpu_type: str
    nodes: int
    used: int
    forecast: list[ForecastMean]
    forecast_by: str
    """Where the forecast comes from; empty: there is none yet."""
    forecast_words: str
    awake: int
    """Nodes that should be awake."""
    could_sleep: list[str]
    """The longest idle first."""
    saved_w: float
    """While these sleep."""
    decided_at: datetime | None


def energy_by_type(now: datetime) -> list[TypeEnergy]:
    """Every GPU type that has nodes, by name."""
    counts, idle = node_counts(), read_idle_nodes(now)
    advice = SleepAdvice.objects.in_bulk(field_name="gpu_type_id")
    in_service = dict(nodes_that_may_sleep().order_by().values_list("gpu_type").annotate(Count("pk")))
    chosen = {
        kind: could_sleep(decided, idle.get(kind, []), awake=in_service.get(kind, 0), used=counts[kind].used)
        for kind, decided in advice.items()
        if kind in counts
    }
    gpus = _gpus_of([name for names in chosen.values() for name in names])
    return [
        _report(kind, counts[kind.pk], advice.get(kind.pk), chosen.get(kind.pk, []), gpus)
        for kind in GpuType.objects.filter(pk__in=counts).order_by("name")
    ]


def could_sleep(advice: SleepAdvice, idle: list[IdleNode], *, awake: int, used: int) -> list[str]:
    """Idle nodes that are not needed, the longest idle first: as decided at the last step, and by the use now."""
    idle_s = {node.name: node.idle_s for node in idle}
    return nodes_to_sleep(idle_s, awake=awake, wanted=max(advice.awake, used))


def _gpus_of(names: list[str]) -> dict[str, int]:
    return dict(
        Gpu.objects.present().filter(node__name__in=names).order_by().values_list("node__name").annotate(Count("pk"))
    )


def _report(
    kind: GpuType, count: NodeCounts, advice: SleepAdvice | None, names: list[str], gpus: dict[str, int]
) -> TypeEnergy:
    means = zip(HORIZONS_H, advice.forecast, strict=True) if advice else ()
    return TypeEnergy(
        gpu_type=kind.name,
        nodes=count.nodes,
        used=count.used,
        forecast=[ForecastMean(hours, mean) for hours, mean in means],
        forecast_by=advice.source if advice else "",
        forecast_words=SleepAdvice.Source(advice.source).label if advice else "",
        awake=advice.awake if advice else count.nodes,
        could_sleep=names,
        saved_w=sum(gpus[name] for name in names) * (kind.idle_w_per_gpu - kind.asleep_w_per_gpu),
        decided_at=advice.at if advice else None,
    )
