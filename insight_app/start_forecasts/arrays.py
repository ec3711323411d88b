"""Forecasts of arrays: the latest of their tasks' forecasts, shown as one row of a list."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import Count, Max, Min, OuterRef, Subquery, UUIDField
from django.utils import timezone

from insight_app.models import JobForecast
from insight_app.start_forecasts.showing import SHOWN_FOR, Interval, ShownForecast
from jobs_app.models import Job
from jobs_app.models.job import JobQuerySet

QUANTILES = ("finish_low", "finish_median", "finish_high")


def read_forecasts_of_arrays(unfinished: Mapping[UUID, int], seen: JobQuerySet) -> dict[UUID, ShownForecast]:
    """The present forecasts of arrays by the number of their unfinished tasks, in one query.

    An array has none while a task has none: one is held, new, or waits behind the front of the queue that is forecast.
    """
    if not (unfinished and settings.MOTLEY_FORECASTS):
        return {}
    tasks = seen.unfinished().filter(array__in=list(unfinished), held=False).order_by().values("pk")
    array = Job.objects.filter(pk=OuterRef("job")).values("array")
    rows = (
        JobForecast.objects.filter(job__in=tasks)
        .order_by()
        .annotate(array=Subquery(array, output_field=UUIDField()))
        .values("array")
    )
    figures = {f"{name}_{what.__name__}": what(name) for name in QUANTILES for what in (Max, Count)}
    found = rows.annotate(tasks=Count("pk"), oldest=Min("made_at"), **figures)
    return {row["array"]: _shown(row) for row in found if _is_whole(row, unfinished)}


def _is_whole(row: Mapping[str, Any], unfinished: Mapping[UUID, int]) -> bool:
    recent: bool = timezone.now() - row["oldest"] <= SHOWN_FOR
    return recent and row["tasks"] == unfinished[row["array"]]


def _shown(row: Mapping[str, Any]) -> ShownForecast:
    """The medians' latest is a little before the median of the end: tasks delay each other, or do not."""
    end = Interval(*(_latest(row, name) for name in QUANTILES))
    return ShownForecast(row["oldest"], start=None, finish=end, gpu_type="", type_part=0, place=0, queue=0)


def _latest(row: Mapping[str, Any], name: str) -> datetime | None:
    """The latest of the times; None (beyond three days) if one of them is None."""
    latest: datetime | None = row[f"{name}_Max"] if row[f"{name}_Count"] == row["tasks"] else None
    return latest
