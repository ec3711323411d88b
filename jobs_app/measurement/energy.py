"""Energy of GPUs over a time: measured where readings exist, else the power of the type times the time."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import reduce

from django.conf import settings

from cluster_app.models import GpuType
from jobs_app.models import Attempt

MOST_UNREAD = 0.05
"""Part of the GPU time without readings, as of a start and an end, with which energy counts as measured."""


class EnergySource(StrEnum):
    """Where a figure of energy comes from."""

    MEASURED = "measured"
    EMULATED = "emulated"
    PARTLY_MEASURED = "partly_measured"
    POWER = "power"
    INCOMPLETE = "incomplete"
    UNKNOWN = "unknown"

    @property
    def words(self) -> str:
        return SOURCE_WORDS[self]


ENERGY_SOURCES = [(source.value, source.name) for source in EnergySource]
"""Choices of REST; with the labels that the schema generator gives to a plain enum."""
SOURCE_WORDS = {
    EnergySource.MEASURED: "measured",
    EnergySource.EMULATED: "invented: its GPUs are emulated",
    EnergySource.PARTLY_MEASURED: "partly measured, the rest by the type's power",
    EnergySource.POWER: "by the type's power",
    EnergySource.INCOMPLETE: "at least: not read in part, and the type's power is not known",
    EnergySource.UNKNOWN: "not read, and the type's power is not known",
}


@dataclass(frozen=True)
class Energy:
    """Energy in J, and the GPU-seconds for which it was measured, was estimated or is unknown.

    `emulated_gpu_s`: the part of `read_gpu_s` on emulated GPUs, whose readings are invented.
    """

    joules: float = 0.0
    read_gpu_s: float = 0.0
    estimated_gpu_s: float = 0.0
    unknown_gpu_s: float = 0.0
    emulated_gpu_s: float = 0.0

    @classmethod
    def of(cls, *, read_j: float, read_gpu_s: float, gpu_s: float, power_w: float, emulated: bool = False) -> "Energy":
        """Of GPUs of one type that ran for `gpu_s`; `power_w` is of one GPU of it in use, 0 if it is not known."""
        rest_s, invented_s = max(gpu_s - read_gpu_s, 0.0), read_gpu_s if emulated else 0.0
        if power_w > 0:
            return cls(read_j + rest_s * power_w, read_gpu_s, rest_s, 0.0, invented_s)
        return cls(read_j, read_gpu_s, 0.0, rest_s, invented_s)

    @classmethod
    def sum(cls, parts: Iterable["Energy"]) -> "Energy":
        return reduce(cls.__add__, parts, cls())

    def __add__(self, other: "Energy") -> "Energy":
        return Energy(
            self.joules + other.joules,
            self.read_gpu_s + other.read_gpu_s,
            self.estimated_gpu_s + other.estimated_gpu_s,
            self.unknown_gpu_s + other.unknown_gpu_s,
            self.emulated_gpu_s + other.emulated_gpu_s,
        )

    @property
    def source(self) -> EnergySource:
        unread_s = self.estimated_gpu_s + self.unknown_gpu_s
        if self.emulated_gpu_s > MOST_UNREAD * (self.read_gpu_s + unread_s):
            return EnergySource.EMULATED
        if self.unknown_gpu_s > MOST_UNREAD * (self.read_gpu_s + unread_s):
            return EnergySource.INCOMPLETE if self.joules else EnergySource.UNKNOWN
        if unread_s <= MOST_UNREAD * (self.read_gpu_s + unread_s):
            return EnergySource.MEASURED
        return EnergySource.PARTLY_MEASURED if self.read_gpu_s else EnergySource.POWER

    @property
    def watt_hours(self) -> float | None:
        """Energy in watt-hours; None if nothing is known."""
        return None if self.source is EnergySource.UNKNOWN else self.joules / 3600

    @property
    def kilowatt_hours(self) -> float | None:
        """None: not known."""
        return None if self.watt_hours is None else self.watt_hours / 1000


def co2_g_of(energy: Energy) -> float | None:
    """Emissions in g of CO2; None: the energy is not known, or no carbon intensity is configured."""
    intensity: float = settings.MOTLEY_CO2_G_PER_KWH
    if not intensity or energy.kilowatt_hours is None:
        return None
    return energy.kilowatt_hours * intensity


def energy_of_ended(attempts: Iterable[Attempt]) -> Energy:
    """Energy of the attempts that have ended, with their GPU types; of one that was read, for all of its run."""
    ended = [attempt for attempt in attempts if attempt.ended_at is not None]
    emulated = set(GpuType.objects.emulated().values_list("pk", flat=True)) if ended else set()
    return Energy.sum(
        energy_of(attempt, attempt.claimed_at, emulated=attempt.gpu_type_id in emulated) for attempt in ended
    )


def energy_of(attempt: Attempt, now: datetime, *, emulated: bool) -> Energy:
    """Energy of an attempt with its GPU type, until now or its end."""
    gpu_s = attempt.gpu_count * attempt.ran_s(now)
    read = attempt.gpu_energy_j is not None
    return Energy.of(
        read_j=attempt.gpu_energy_j or 0.0,
        read_gpu_s=gpu_s if read else 0.0,
        gpu_s=gpu_s,
        power_w=attempt.gpu_type.power_w,
        emulated=emulated,
    )
