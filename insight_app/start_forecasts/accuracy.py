r"""Accuracy of forecasts of starts and ends: coverage, pinball loss and error of the median, by class.

The pinball loss of the quantile q with the value x, when it was y, is

.. math::
    L_q(x, y) = \max(q (y - x),\ (q - 1) (y - x)),

and that of an interval the mean over its three quantiles, in seconds.

References
----------
.. [1] Koenker and Bassett, Econometrica 1978, "Regression Quantiles".
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple, Self

import numpy as np
from django.contrib.auth.models import User

from estimation.accuracy import FEWEST
from forecast.calibration import HORIZONS_S, ForecastClass, Outcome
from forecast.intervals import QUANTILES
from insight_app.start_forecasts.forecast_store import MOST_OUTCOMES, read_outcomes_of_teams, read_shown

COVERED = QUANTILES[-1] - QUANTILES[0]
"""Part of the events that lie in the interval, if forecasts are right."""


class Score(NamedTuple):
    """How forecasts turned out."""

    outcomes: int
    coverage: float
    """Part of the events within the interval from 10 to 90 %."""
    pinball_s: float
    median_error_s: float
    """Half of the events were no farther from the median of the forecast."""

    @classmethod
    def of(cls, outcomes: Iterable[Outcome]) -> Self:
        values = np.array(list(outcomes), dtype=float)
        quantiles, true = values[:, :3], values[:, 3]
        over, q = true[:, None] - quantiles, np.array(QUANTILES)
        return cls(
            len(values),
            float(((quantiles[:, 0] <= true) & (true <= quantiles[:, 2])).mean()),
            float(np.maximum(q * over, (q - 1) * over).mean()),
            float(np.median(np.abs(over[:, 1]))),
        )

    @property
    def too_few(self) -> bool:
        """Whether these are too few outcomes for the figures to say anything."""
        return self.outcomes < FEWEST


class ForecastAccuracy(NamedTuple):
    """Accuracy of the forecasts of one class: event (start or finish), horizon, known or unknown length."""

    event: str
    from_s: float
    until_s: float | None
    """Limits of the median of the forecast; None: without limit."""
    known_length: bool
    score: Score

    @classmethod
    def of(cls, group: ForecastClass, outcomes: Iterable[Outcome]) -> Self:
        """Judge the outcomes of one class."""
        limits = (0.0, *HORIZONS_S, None)
        until_s = limits[group.horizon + 1]
        return cls(group.event, limits[group.horizon] or 0.0, until_s, group.known_length, Score.of(outcomes))


class TeamJudgement(NamedTuple):
    """Accuracy of the forecasts of one team's jobs, by event (start or finish)."""

    team: str
    event: str
    score: Score


def judge_job_forecasts() -> list[ForecastAccuracy]:
    """Judge the newest outcomes, as they were shown, by class but for the width, in one query."""
    groups: dict[ForecastClass, list[Outcome]] = defaultdict(list)
    for group, outcome in read_shown():
        groups[group._replace(spread=0)].append(outcome)
    order = sorted(groups, key=lambda group: (group.event != "start", not group.known_length, group.horizon))
    return [ForecastAccuracy.of(group, groups[group]) for group in order]


def judge_by_team(user: User) -> list[TeamJudgement]:
    """Judge the newest outcomes of the teams that the user sees, as they were shown, by event, in one query."""
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for team, event, outcome in read_outcomes_of_teams(None if user.is_staff else user.teams.all()):
        groups[team, event].append(outcome)
    order = sorted(groups, key=lambda group: (group[0], group[1] != "start"))
    return [TeamJudgement(team, event, Score.of(groups[team, event])) for team, event in order]


__all__ = [
    "COVERED",
    "FEWEST",
    "MOST_OUTCOMES",
    "ForecastAccuracy",
    "Score",
    "TeamJudgement",
    "judge_by_team",
    "judge_job_forecasts",
]
