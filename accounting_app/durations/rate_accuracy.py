"""Accuracy of rates by source: the rate that the round of an attempt assumed, compared with the measured one."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from cluster_app.models import Node
from estimation.accuracy import Accuracy, accuracy_of
from jobs_app.models import Attempt
from jobs_app.models.attempt import OF_MEASURED_RATE

MOST_READ = 10_000
"""Of the attempts that ended last: many report no progress."""
MOST_JUDGED = 2_000
LEAST_REPORTS = 3
"""Progress reports behind a measured rate, as for rounds."""
LEAST_RATE = 1e-9
"""Steps per second below count as this."""


class RateOutcome(NamedTuple):
    """An expected and a measured rate in steps per second of the attempt's own batch."""

    source: Attempt.RateSource
    expected: float
    measured: float


class RateJudgement(NamedTuple):
    """Accuracy of the expected rates of one source."""

    source: Attempt.RateSource
    accuracy: Accuracy


def judge_rates() -> list[RateJudgement]:
    """Accuracy by source, over the attempts with a measured rate that ended last; in the order of `RateSource`."""
    outcomes = _by_source(_outcomes(_ended_attempts(), _emulated_nodes()))
    return [RateJudgement(source, _accuracy(outcomes[source])) for source in Attempt.RateSource if outcomes[source]]


def _ended_attempts() -> list[Attempt]:
    """Ended attempts with a measured rate of one batch, the newest end first."""
    last = Attempt.objects.filter(ended_at__isnull=False).order_by("-ended_at").values("pk")[:MOST_READ]
    told = Attempt.objects.filter(pk__in=last, reports__gte=LEAST_REPORTS, rate__gt=0, batch_changes=0)
    columns = ("rate_source", "rate", "step_worth", "nodes", *OF_MEASURED_RATE)
    return list(told.exclude(rate_source="").only(*columns).order_by("-ended_at")[:MOST_JUDGED])


def _emulated_nodes() -> frozenset[str]:
    return frozenset(Node.objects.filter(emulated=True).values_list("name", flat=True))


def _outcomes(attempts: Iterable[Attempt], emulated: frozenset[str]) -> Iterator[RateOutcome]:
    """Outcomes on real GPUs; emulated ones run at the expected rate by construction."""
    for attempt in attempts:
        measured = attempt.measured_rate
        if measured is not None and measured > 0 and emulated.isdisjoint(attempt.nodes):
            yield RateOutcome(Attempt.RateSource(attempt.rate_source), attempt.own_rate, measured)


def _by_source(outcomes: Iterable[RateOutcome]) -> dict[Attempt.RateSource, list[RateOutcome]]:
    groups: dict[Attempt.RateSource, list[RateOutcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.source].append(outcome)
    return groups


def _accuracy(outcomes: list[RateOutcome]) -> Accuracy:
    expected, measured = (np.array([getattr(one, name) for one in outcomes]) for name in ("expected", "measured"))
    return accuracy_of(expected, measured, least=LEAST_RATE)
