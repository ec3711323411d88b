"""Report on energy per GPU type: nodes, demand and its forecast, which nodes could sleep, and the power that saves."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime

from accounting_app.energy.advice import HORIZONS
from accounting_app.energy.node_power import awake_counts, nodes_not_needed, read_idle_nodes
from accounting_app.energy.node_use import STEP_H, NodeCounts, node_counts
from accounting_app.models import SleepAdvice
from cluster_app.models import POWERED_DOWN, Gpu, GpuType, Node, NodePower

HORIZONS_H = tuple(horizon * STEP_H for horizon in HORIZONS)


@dataclass(frozen=True)
class ForecastMean:
    """Mean number of nodes in use over the next hours."""

    hours: float
    nodes: float


@dataclass(frozen=True)
class TypeEnergy:
    """Energy report of one GPU type. Powers are of whole nodes, in W."""

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
    asleep: list["PoweredDownNode"]
    """Nodes that sleep, or are being woken."""
    saved_w: float
    """While the nodes sleep that could, and those that do."""
    decided_at: datetime | None

    @property
    def sleeping(self) -> int:
        return sum(node.state == Node.State.SLEEPING for node in self.asleep)


@dataclass(frozen=True)
class PoweredDownNode:
    """A node that sleeps, or is being woken."""

    name: str
    state: str
    since: datetime
    fault: str
    """Of the site's command, the last time, with its output for staff only; empty: none."""


WITHOUT_OUTPUT = "the site's command failed"
"""A site's output may name hosts and accounts of its management network."""


def powered_down_nodes(*, for_staff: bool) -> dict[int, list[PoweredDownNode]]:
    """By GPU type, by name."""
    found: dict[int, list[PoweredDownNode]] = defaultdict(list)
    for row in NodePower.objects.filter(node__state__in=POWERED_DOWN).select_related("node").order_by("node__name"):
        node, fault = row.node, row.fault and (row.fault if for_staff else WITHOUT_OUTPUT)
        found[node.gpu_type_id].append(PoweredDownNode(node.name, node.state, row.since, fault))
    return found


def energy_by_type(now: datetime, *, for_staff: bool) -> list[TypeEnergy]:
    """Every GPU type that has nodes, by name."""
    counts, choices, asleep = node_counts(), sleep_choices(now), powered_down_nodes(for_staff=for_staff)
    advice = SleepAdvice.objects.in_bulk(field_name="gpu_type_id")
    return [
        _report(
            kind, counts[kind.pk], advice.get(kind.pk), could_sleep=choices.get(kind.pk, []), asleep=asleep[kind.pk]
        )
        for kind in GpuType.objects.filter(pk__in=counts).order_by("name")
    ]


def sleep_choices(now: datetime) -> dict[int, list[str]]:
    """Nodes that could sleep, by GPU type, by the last decision and the present use."""
    counts, idle, awake = node_counts(), read_idle_nodes(now), awake_counts()
    return {
        one.gpu_type_id: nodes_not_needed(
            one, idle.get(one.gpu_type_id, []), awake=awake[one.gpu_type_id], used=counts[one.gpu_type_id].used
        )
        for one in SleepAdvice.objects.filter(gpu_type__in=counts)
    }


def _report(
    kind: GpuType,
    count: NodeCounts,
    advice: SleepAdvice | None,
    *,
    could_sleep: list[str],
    asleep: list[PoweredDownNode],
) -> TypeEnergy:
    down = [node.name for node in asleep if node.state == Node.State.SLEEPING]
    gpus = Gpu.objects.present().filter(node__name__in=[*could_sleep, *down]).count()
    means = zip(HORIZONS_H, advice.forecast, strict=True) if advice else ()
    return TypeEnergy(
        gpu_type=kind.name,
        nodes=count.nodes,
        used=count.used,
        forecast=[ForecastMean(hours, mean) for hours, mean in means],
        forecast_by=advice.source if advice else "",
        forecast_words=SleepAdvice.Source(advice.source).label if advice else "",
        awake=advice.awake if advice else count.nodes,
        could_sleep=could_sleep,
        asleep=asleep,
        saved_w=gpus * (kind.idle_w_per_gpu - kind.asleep_w_per_gpu),
        decided_at=advice.at if advice else None,
    )
