"""Receipt of a job: GPU-hours, cost, energy and CO2 of its attempts by GPU type, so far or in all."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

from django.conf import settings

from cluster_app.models import GpuType
from jobs_app.measurement.energy import Energy, co2_g_of, energy_of
from jobs_app.models import Attempt, Job


class ReceiptLine(NamedTuple):
    """What the attempts on one GPU type took."""

    gpu_type: str
    attempts: int
    gpu_hours: float
    price_per_hour: float | None
    """Of one GPU, as it is now; None: the type has no price."""
    energy: Energy

    @property
    def cost(self) -> float | None:
        return None if self.price_per_hour is None else self.gpu_hours * self.price_per_hour


class Receipt:
    """Lines by GPU type and their sums."""

    def __init__(self, lines: Sequence[ReceiptLine], *, lost_gpu_hours: float, complete: bool) -> None:
        self.lines, self.lost_gpu_hours, self.complete = lines, lost_gpu_hours, complete
        self.currency: str = settings.MOTLEY_CURRENCY

    @property
    def gpu_hours(self) -> float:
        return sum(line.gpu_hours for line in self.lines)

    @property
    def cost(self) -> float | None:
        """Of the types that have a price; None: none of them has one."""
        known = [line.cost for line in self.lines if line.cost is not None]
        return sum(known) if known else None

    @property
    def unpriced(self) -> Sequence[str]:
        return [line.gpu_type for line in self.lines if line.price_per_hour is None]

    @cached_property
    def energy(self) -> Energy:
        return Energy.sum(line.energy for line in self.lines)

    @property
    def energy_kwh(self) -> float | None:
        return self.energy.kilowatt_hours

    @property
    def co2_g(self) -> float | None:
        return co2_g_of(self.energy)


def read_receipt(job: Job, attempts: Iterable[Attempt], now: datetime) -> Receipt:
    """The receipt of the job, whose attempts come with their GPU types."""
    emulated = set(GpuType.objects.emulated().values_list("pk", flat=True))
    energy = {attempt: energy_of(attempt, now, emulated=attempt.gpu_type_id in emulated) for attempt in attempts}
    return Receipt(lines_of(energy, now), lost_gpu_hours=job.work_lost_gpu_s / 3600, complete=job.is_final)


def lines_of(energy: Mapping[Attempt, Energy], now: datetime) -> list[ReceiptLine]:
    """A line for each GPU type on which an attempt ran, that with the most GPU-hours first."""
    by_type: dict[GpuType, list[Attempt]] = defaultdict(list)
    for attempt in energy:
        if attempt.ran_s(now):
            by_type[attempt.gpu_type].append(attempt)
    lines = [
        ReceiptLine(
            gpu_type.name,
            len(its),
            sum(attempt.gpu_count * attempt.ran_s(now) for attempt in its) / 3600,
            float(gpu_type.price_per_hour) or None,
            Energy.sum(energy[attempt] for attempt in its),
        )
        for gpu_type, its in by_type.items()
    ]
    return sorted(lines, key=lambda line: (-line.gpu_hours, line.gpu_type))
