"""Readings of GPUs, merged into one row per GPU, attempt and minute, and written in bulk."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from accounting_app.models import GpuMinute
from database.bulk_insert import insert_many
from database.bulk_update import rewrite
from engines.protocol import GpuReading, Throttle


class Figure(NamedTuple):
    """Mean and highest value of one figure over the readings of a minute; None: the driver does not say."""

    mean: float | None = None
    highest: float | None = None

    def with_reading(self, value: float | None, readings: int) -> "Figure":
        """The figure with one more value, of so many readings; readings without a value count as the mean."""
        if value is None:
            return self
        if self.mean is None or self.highest is None:
            return Figure(value, value)
        return Figure(self.mean + (value - self.mean) / readings, max(self.highest, value))


class Minute(NamedTuple):
    """The columns of a `GpuMinute`."""

    readings: int = 0
    utilization: Figure = Figure()
    memory_used_mib: Figure = Figure()
    power_w: Figure = Figure()
    temperature_c: Figure = Figure()
    ecc_errors: int | None = None
    throttle: Throttle = Throttle.NONE

    def with_reading(self, one: GpuReading) -> "Minute":
        readings = self.readings + 1
        return Minute(
            readings,
            self.utilization.with_reading(one.utilization, readings),
            self.memory_used_mib.with_reading(one.memory_used_mib, readings),
            self.power_w.with_reading(one.power_w, readings),
            self.temperature_c.with_reading(one.temperature_c, readings),
            self.ecc_errors if one.ecc_errors is None else one.ecc_errors,
            self.throttle | one.throttle,
        )

    def columns(self) -> tuple[float | None, ...]:
        """In the order of `COLUMNS`."""
        figures = (self.utilization, self.memory_used_mib, self.power_w, self.temperature_c)
        return (self.readings, *(value for figure in figures for value in figure), self.ecc_errors, int(self.throttle))


COLUMNS = (
    "readings",
    "utilization",
    "utilization_max",
    "memory_used_mib",
    "memory_used_max_mib",
    "power_w",
    "power_max_w",
    "temperature_c",
    "temperature_max_c",
    "ecc_errors",
    "throttle",
)
Key = tuple[int, int | None]
"""GPU, and the attempt that holds it."""


def minute_of(now: datetime) -> datetime:
    return now.replace(second=0, microsecond=0)


def store_readings(readings: Iterable[GpuReading], holders: Mapping[int, int], now: datetime) -> None:
    """Add the readings to the rows of this minute, in three statements for all GPUs.

    holders: GPU → the attempt that holds it. Reading and writing back is safe inside a transaction of the loop of
    engines: nobody else writes here.
    """
    minute = minute_of(now)
    known = _read(minute)
    telling = [((one.gpu, attempt_of(one, holders)), one) for one in readings if says_something(one)]
    new, changed = merged(known, telling)
    insert_many(GpuMinute, [_row(key, minute, row) for key, row in new.items()])
    rewrite(GpuMinute, COLUMNS, changed)


def attempt_of(one: GpuReading, holders: Mapping[int, int]) -> int | None:
    """The attempt that has the GPU: a site may give it another GPU of the node than the one of its claim."""
    return one.attempt if one.attempt is not None else holders.get(one.gpu)


def says_something(one: GpuReading) -> bool:
    """Whether the reading has a figure; if not, as for a lost GPU, means leave it out."""
    figures = (one.utilization, one.memory_used_mib, one.power_w, one.temperature_c, one.ecc_errors)
    return any(figure is not None for figure in figures)


def merged(
    known: Mapping[Key, tuple[int, Minute]], readings: Iterable[tuple[Key, GpuReading]]
) -> tuple[dict[Key, Minute], dict[int, tuple[float | None, ...]]]:
    """Rows to insert, and the new columns of the rows that exist, by their primary key."""
    new: dict[Key, Minute] = {}
    changed: dict[int, tuple[float | None, ...]] = {}
    for key, one in readings:
        if key in known:
            pk, before = known[key]
            changed[pk] = before.with_reading(one).columns()
        else:
            new[key] = new.get(key, Minute()).with_reading(one)
    return new, changed


def _read(minute: datetime) -> dict[Key, tuple[int, Minute]]:
    rows = GpuMinute.objects.filter(minute=minute).values_list("pk", "gpu", "attempt", *COLUMNS)
    return {(gpu, attempt): (pk, _minute(columns)) for pk, gpu, attempt, *columns in rows}


def _minute(columns: Sequence[float | None]) -> Minute:
    readings, *figures, ecc_errors, throttle = columns
    utilization, memory, power, temperature = (Figure(*figures[start : start + 2]) for start in range(0, 8, 2))
    errors = None if ecc_errors is None else int(ecc_errors)
    return Minute(int(readings or 0), utilization, memory, power, temperature, errors, Throttle(int(throttle or 0)))


def _row(key: Key, minute: datetime, row: Minute) -> dict[str, object]:
    gpu, attempt = key
    return {"gpu_id": gpu, "attempt_id": attempt, "minute": minute, **dict(zip(COLUMNS, row.columns(), strict=True))}
