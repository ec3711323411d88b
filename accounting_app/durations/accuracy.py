"""Accuracy of the forecasts of durations made at submission and at the start, compared with the true durations."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from accounting_app.models import DurationForecast
from estimation.accuracy import Accuracy, accuracy_of
from estimation.durations import Basis
from estimation.estimate import HIGH, LOW, Estimate
from estimation.scaling import Source

MOST_JUDGED = 2_000
"""Of the jobs that succeeded last."""
WITHIN_LIMITS = HIGH - LOW
"""Part of the durations that lie within the limits, if forecasts know how good they are."""


class Moment(StrEnum):
    """When a forecast was made."""

    SUBMISSION = "submission"
    START = "start"


class Outcome(NamedTuple):
    """A forecast and how long the job then took, in seconds of its smallest gang on average GPUs."""

    forecast_s: float
    spread: float
    seconds: float

    @property
    def is_within_limits(self) -> bool:
        """Whether the duration is within the 80 % interval."""
        expected = Estimate(self.forecast_s, self.spread, Source.SIMILAR, 1)
        return expected.quantile_left(LOW) <= self.seconds <= expected.quantile_left(HIGH)


class DurationAccuracy(NamedTuple):
    """Accuracy of the forecasts of one moment and basis."""

    moment: Moment
    basis: Basis
    accuracy: Accuracy
    within_limits: float | None
    """Part of the durations within the limits; None: declared and reported lengths have none."""


def judge_forecasts() -> list[DurationAccuracy]:
    """Judge the forecasts of the jobs that succeeded last, by moment and basis, in one query."""
    outcomes = _outcomes_by_group(_ended_forecasts())
    order = {group: place for place, group in enumerate((m, b) for m in Moment for b in Basis)}
    return [_judgement(*group, outcomes[group]) for group in sorted(outcomes, key=order.__getitem__)]


Row = tuple[float, float | None, float | None, str, float | None, float | None, str]
"""Seconds; forecast, spread and basis at submission; the same at the start."""


def _ended_forecasts() -> list[Row]:
    columns = [f"{moment}_{name}" for moment in Moment for name in ("s", "spread", "basis")]
    ended = DurationForecast.objects.exclude(ended_at=None).order_by("-ended_at")
    return list(ended.values_list("seconds", *columns)[:MOST_JUDGED])


def _outcomes_by_group(rows: Iterable[Row]) -> dict[tuple[Moment, Basis], list[Outcome]]:
    groups: dict[tuple[Moment, Basis], list[Outcome]] = defaultdict(list)
    for group, outcome in (found for row in rows for found in _outcomes(row)):
        groups[group].append(outcome)
    return groups


def _outcomes(row: Row) -> Iterator[tuple[tuple[Moment, Basis], Outcome]]:
    seconds, *of_submission, start_s, start_spread, start_basis = row
    made = {Moment.SUBMISSION: of_submission, Moment.START: [start_s, start_spread, start_basis]}
    for moment, (forecast_s, spread, basis) in made.items():
        if isinstance(forecast_s, float) and isinstance(spread, float):
            yield (moment, Basis(str(basis))), Outcome(forecast_s, spread, seconds)


def _judgement(moment: Moment, basis: Basis, outcomes: list[Outcome]) -> DurationAccuracy:
    forecast_s, _, seconds = np.array(outcomes, dtype=float).T
    within = sum(outcome.is_within_limits for outcome in outcomes) / len(outcomes)
    has_limits = basis not in (Basis.DECLARED, Basis.REPORTED)
    return DurationAccuracy(moment, basis, accuracy_of(forecast_s, seconds), within if has_limits else None)
