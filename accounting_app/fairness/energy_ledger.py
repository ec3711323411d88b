"""Energy of GPUs that jobs hold: readings added to the usage ledger, and the energy of a round."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from accounting_app.fairness.usage_ledger import DAY, MINUTE, add_amounts, periods_between
from accounting_app.models import DailyUsage, GpuTypeUsage
from cluster_app.models import GpuType
from jobs_app.measurement.energy import Energy

AMOUNTS = ("read_energy_j", "read_gpu_s")
OF_TEAMS = (*AMOUNTS, "watched_gpu_s", "idle_gpu_s")


class ReadEnergy(NamedTuple):
    """Readings of a team's attempt: energy, idle GPU-seconds, and the GPU-seconds that each was read for.

    GPUs are watched where their utilization is read; they count as idle where it is below 5 %.
    """

    team: int
    gpu_type: int
    joules: float
    gpu_s: float
    watched_gpu_s: float = 0.0
    idle_gpu_s: float = 0.0


def add_energy_to_ledger(read: Iterable[ReadEnergy], since: datetime, now: datetime) -> None:
    """Add the readings of this time to the minutes per GPU type, and to the days per team and GPU type."""
    of_types, of_teams = (
        defaultdict[tuple[int], list[ReadEnergy]](list),
        defaultdict[tuple[int, int], list[ReadEnergy]](list),
    )
    for one in read:
        of_types[one.gpu_type,].append(one)
        of_teams[one.team, one.gpu_type].append(one)
    whole_s = (now - since).total_seconds()
    add_amounts(
        GpuTypeUsage,
        [
            GpuTypeUsage(gpu_type_id=kind, minute=minute, **_part(some, seconds / whole_s, AMOUNTS))
            for minute, seconds in periods_between(since, now, MINUTE)
            for (kind,), some in of_types.items()
        ],
        key=("gpu_type_id", "minute"),
        amounts=AMOUNTS,
    )
    add_amounts(
        DailyUsage,
        [
            DailyUsage(team_id=team, gpu_type_id=kind, day=day.date(), **_part(some, seconds / whole_s, OF_TEAMS))
            for day, seconds in periods_between(since, now, DAY)
            for (team, kind), some in of_teams.items()
        ],
        key=("team_id", "gpu_type_id", "day"),
        amounts=OF_TEAMS,
    )


def _part(read: Iterable[ReadEnergy], part: float, names: Sequence[str]) -> dict[str, float]:
    """The amounts of this part of the time, as many as there are names."""
    amounts = [(one.joules, one.gpu_s, one.watched_gpu_s, one.idle_gpu_s)[: len(names)] for one in read]
    return {name: sum(column) * part for name, column in zip(names, zip(*amounts, strict=True), strict=True)}


@dataclass(frozen=True)
class TypeConsumption:
    """Energy of the GPUs of a type that jobs held in a time span, such as that of a round."""

    gpu_type: str
    energy: Energy


def energy_between(since: datetime, until: datetime) -> list[TypeConsumption]:
    """Energy between two times by GPU type and its name; empty after the ledger's minutes expired.

    The ledger knows minutes: of one that reaches beyond the two times, the part between them counts.
    """
    minutes = GpuTypeUsage.objects.filter(minute__gt=since - MINUTE, minute__lt=until)
    columns = ("minute", "busy_gpu_s", "read_gpu_s", "read_energy_j")
    found = defaultdict[str, list[Energy]](list)
    emulated = set(GpuType.objects.emulated().values_list("name", flat=True))
    for name, power_w, minute, *amounts in minutes.order_by("gpu_type__name").values_list(
        "gpu_type__name", "gpu_type__power_w", *columns
    ):
        part = overlap(minute, since, until) / MINUTE
        gpu_s, read_gpu_s, read_j = (amount * part for amount in amounts)
        energy = Energy.of(
            read_j=read_j, read_gpu_s=read_gpu_s, gpu_s=gpu_s, power_w=power_w, emulated=name in emulated
        )
        found[name].append(energy)
    return [TypeConsumption(name, Energy.sum(parts)) for name, parts in found.items()]


def overlap(minute: datetime, since: datetime, until: datetime) -> timedelta:
    """Overlap of this minute with the time between the two."""
    return max(min(minute + MINUTE, until) - max(minute, since), timedelta(0))
