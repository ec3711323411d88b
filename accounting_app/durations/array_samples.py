"""Samples of arrays: sums over the durations of their tasks that succeeded, and the forecast from history."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Avg, Count, F, Q, Sum, Value
from django.db.models.functions import Greatest, Ln

from accounting_app.models import DurationForecast
from estimation.durations import LEAST_SECONDS, Basis, Sums
from estimation.estimate import Estimate
from estimation.scaling import Source

OF_HISTORY = (Basis.SIMILAR, Basis.SIMILAR_OF_TEAM, Basis.USER, Basis.ALL, Basis.STAGES)
"""What a forecast is based on that no task of the array has told of."""


class ArraySample(NamedTuple):
    """Durations of an array's ended tasks, on smallest gangs of average GPUs, and the forecast at their submission."""

    ended: Sums
    history: Estimate | None


def read_array_samples(arrays: Collection[UUID]) -> dict[UUID, ArraySample]:
    """Samples of those of these arrays of which a task has succeeded, in one query; none where there are no arrays."""
    if not arrays:
        return {}
    by_history = Q(submission_basis__in=OF_HISTORY)
    ended = DurationForecast.objects.filter(array__in=arrays, ended_at__isnull=False).order_by()
    logarithm = Ln(Greatest(F("seconds"), Value(LEAST_SECONDS)))
    rows = ended.values("array").annotate(
        n=Count("pk"),
        total=Sum("seconds"),
        log=Sum(logarithm),
        log_sqr=Sum(logarithm * logarithm),
        forecast_s=Avg("submission_s", filter=by_history),
        forecast_spread=Avg("submission_spread", filter=by_history),
        forecast_n=Avg("submission_n", filter=by_history),
    )
    return {row["array"]: _sample(row) for row in rows if row["array"]}


def _sample(row: Mapping[str, Any]) -> ArraySample:
    n, mean, spread = row["n"], row["forecast_s"], row["forecast_spread"]
    ended = Sums(n, n, max(row["total"], LEAST_SECONDS * n), row["log"], row["log_sqr"])
    if not mean or spread is None:
        return ArraySample(ended, None)
    return ArraySample(ended, Estimate(mean, spread, Source.SIMILAR, round(row["forecast_n"])))
