"""Prices and load of the hours to come, as the newest run of forecasts planned them; what a run would cost others."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Self

from django.conf import settings

from allocation.policies import prices_in_hours
from insight_app.models import ForecastRun
from scheduler_app.models import PolicySetting

FRESH = timedelta(minutes=30)
"""An older plan says little of the queue as it is."""
HOUR = timedelta(hours=1)


class PlannedInterval(NamedTuple):
    """Price in hours that others wait per GPU-hour, and GPUs in use, in an interval of the plan."""

    since: datetime
    until: datetime
    price: float
    load: float


@dataclass(frozen=True)
class PlannedHours:
    """Intervals of the plan by GPU type, the first of which begins when it was made."""

    types: Mapping[str, Sequence[PlannedInterval]]

    @classmethod
    def of(cls, data: Mapping[str, Any], made_at: datetime) -> Self:
        """From what a run of forecasts keeps."""
        ends = [made_at + timedelta(seconds=end_s) for end_s in data["ends_s"]]
        rows = {
            name: zip([made_at, *ends], ends, data["prices"][name], data["load"][name], strict=False)
            for name in data["prices"]
        }
        return cls({name: [PlannedInterval(*row) for row in of_type] for name, of_type in rows.items()})

    def end_of(self, since: datetime, seconds: float) -> datetime:
        """When a run of so many seconds ends, at most the plan's end: a job may ask for more years than dates have."""
        last = max((of_type[-1].until for of_type in self.types.values() if of_type), default=since)
        return since + timedelta(seconds=min(seconds, max((last - since).total_seconds(), 0.0)))

    def waiting_h(self, gpu_type: str, gpus: int, since: datetime, until: datetime) -> float | None:
        """Hours that others wait for so many GPUs over a time, nothing after the plan's end; None: an unknown type."""
        if gpu_type not in self.types:
            return None
        return sum(gpus * one.price * hours for one, hours in self._over(gpu_type, since, until))

    def _over(self, gpu_type: str, since: datetime, until: datetime) -> Iterator[tuple[PlannedInterval, float]]:
        for one in self.types[gpu_type]:
            if (hours := (min(one.until, until) - max(one.since, since)) / HOUR) > 0:
                yield one, hours


def read_planned_hours(now: datetime) -> PlannedHours | None:
    """The newest plan; None: there is none that is fresh, or the current policy decides by no plan."""
    if not settings.MOTLEY_FORECASTS:
        return None
    runs = ForecastRun.objects.filter(started_at__gt=now - FRESH, started_at__lte=now, planned__isnull=False)
    planned, made_at = runs.values_list("planned", "started_at").first() or (None, now)
    if not planned or not prices_in_hours(PolicySetting.objects.current().policy):
        return None
    return PlannedHours.of(planned, made_at)
