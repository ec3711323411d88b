"""Counters for metrics: inserted as tallies, folded into totals periodically, read as the sum of both."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from django.db import transaction
from django.db.models import F, IntegerField, Value

from jobs_app.models import Metric, Tally, Total

AT_ONCE = 10_000
SUM, REST = "sum", "+Inf"
BOUNDS: dict[str, tuple[float, ...]] = {
    Metric.JOB_WAIT: (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600),
    Metric.ROUND_TIME: (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100),
    Metric.SOLVER_TIME: (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
    Metric.FINISH_TIME_FAIRNESS: (0.5, 0.75, 1, 1.25, 1.5, 2, 3, 5, 10, 30),
}
"""Histogram buckets: a value is counted under the smallest bound that it does not exceed."""

Sums: TypeAlias = defaultdict[tuple[str, str], float]


class Count(NamedTuple):
    metric: str
    label: str = ""
    value: float = 1.0


def tally(*counts: Count) -> None:
    """Insert tallies in the transaction of what they count, so that a rollback removes them, too."""
    Tally.objects.bulk_create([Tally(metric=c.metric, label=c.label, value=c.value) for c in counts])


def total_up(*counts: Count) -> None:
    """Fold all tallies, and these counts, into the totals. Only the scheduler calls it, one process at a time."""
    _add(counts)
    while _total_up_some() == AT_ONCE:
        pass


@transaction.atomic
def _total_up_some() -> int:
    tallies = list(Tally.objects.order_by("pk").values_list("pk", "metric", "label", "value")[:AT_ONCE])
    Tally.objects.filter(pk__in=[pk for pk, *_ in tallies]).delete()
    _add(Count(metric, label, value) for _, metric, label, value in tallies)
    return len(tallies)


def _add(counts: Iterable[Count]) -> None:
    for (metric, label), value in sums(counts).items():
        total = Total.objects.filter(metric=metric, label=label)
        if not total.update(value=F("value") + value):
            Total.objects.create(metric=metric, label=label, value=value)


def sums(counts: Iterable[Count]) -> Sums:
    """Sum by metric and label; of a histogram the count per bucket, and the sum of values under `sum`."""
    found: Sums = defaultdict(float)
    for metric, label, value in counts:
        if metric in BOUNDS:
            found[metric, SUM] += value
            found[metric, bucket_of(metric, value)] += 1
        else:
            found[metric, label] += value
    return found


def bucket_of(metric: str, value: float) -> str:
    at = bisect_left(BOUNDS[metric], value)
    return f"{BOUNDS[metric][at]:g}" if at < len(BOUNDS[metric]) else REST


def totals() -> Sums:
    """All sums so far, in one statement: between two statements tallies could be folded into totals."""
    fields = ("to_be_added", "metric", "label", "value")
    added = Total.objects.annotate(to_be_added=Value(0, IntegerField())).values_list(*fields)
    waiting = Tally.objects.annotate(to_be_added=Value(1, IntegerField())).values_list(*fields)
    rows = list(added.union(waiting, all=True))
    found = sums(Count(metric, label, value) for to_be_added, metric, label, value in rows if to_be_added)
    for to_be_added, metric, label, value in rows:
        if not to_be_added:
            found[metric, label] += value
    return found
