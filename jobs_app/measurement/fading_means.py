"""Exponentially fading means of measured rates, updated in bulk by the unique key of their model."""

from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, TypeVar

from database.bulk_update import rewrite
from jobs_app.models import CpuRate, MeasuredRate, Throughput

MOST_ROWS = 64
"""Kept per gang of a workload: a program that reports another batch size each time cannot fill the table."""
FIGURES = ("steps_per_second", "spread", "reports", "runs", "log_sum", "log_square_sum")
Rate = TypeVar("Rate", bound=MeasuredRate)


class RateKey(NamedTuple):
    """Columns of a measured rate that are unique together."""

    team_id: int
    workload: str
    gpu_type_id: int
    gpus: int
    nodes: int
    batch_size: int
    cpus_per_gpu: int = 0
    """0: whatever they are."""

    @property
    def gang(self) -> tuple[int, str, int, int, int]:
        return self[:5]


class RateNews(NamedTuple):
    """A rate in steps/s since the last report, and the number of reports behind it."""

    key: RateKey
    steps_per_s: float
    reports: int
    of_run: float | None = None
    """Rate of the attempt since its first report; None: it has not advanced."""
    of_run_before: float | None = None
    """The same at the report before."""


def learn_rates(news: Iterable[RateNews]) -> None:
    """Merge the rates into the means of their configurations, whatever CPUs their attempts had."""
    _learn(Throughput, [one._replace(key=one.key._replace(cpus_per_gpu=0)) for one in news], RateKey._fields[:-1])


def learn_cpu_rates(news: Iterable[RateNews]) -> None:
    """Merge the rates of attempts to which a round gave CPUs into the means by CPUs per GPU."""
    _learn(CpuRate, [one for one in news if one.key.cpus_per_gpu], RateKey._fields)


def _learn(model: type[Rate], news: Sequence[RateNews], columns: Sequence[str]) -> None:
    if not news:
        return
    known = _known(model, {one.key for one in news}, columns)
    for one in news:
        if one.key in known:
            known[one.key].add(rate=one.steps_per_s, reports=one.reports)
            if one.of_run:
                known[one.key].add_run(rate=one.of_run, before=one.of_run_before)
    old = {rate.pk: tuple(getattr(rate, name) for name in FIGURES) for rate in known.values() if rate.pk}
    rewrite(model, FIGURES, old)
    model._default_manager.bulk_create([rate for rate in known.values() if not rate.pk])


def _known(model: type[Rate], keys: AbstractSet[RateKey], columns: Sequence[str]) -> dict[RateKey, Rate]:
    """Stored or new row of each key, up to `MOST_ROWS` per gang."""
    rows = model._default_manager.filter(
        team__in={key.team_id for key in keys}, workload__in={key.workload for key in keys}
    )
    found = {RateKey(**{name: getattr(row, name) for name in columns}): row for row in rows}
    of_gang = Counter(key.gang for key in found)
    known = {key: rate for key, rate in found.items() if key in keys}
    for key in sorted(keys - known.keys()):
        if of_gang[key.gang] < MOST_ROWS:
            of_gang[key.gang] += 1
            known[key] = model(**{name: getattr(key, name) for name in columns}, steps_per_second=0.0)
    return known
