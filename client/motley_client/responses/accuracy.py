"""How accurate forecasts and estimates were."""

from typing import TypedDict


class ForecastJudgement(TypedDict):
    """How accurate forecasts of starts or ends were, by how far ahead they were made."""

    outcomes: int
    too_few: bool
    coverage: float
    pinball_s: float
    median_error_s: float
    event: str
    from_s: float
    until_s: float | None
    known_length: bool


class TeamForecast(TypedDict):
    """Accuracy of the forecasts for the jobs of one team."""

    outcomes: int
    too_few: bool
    coverage: float
    pinball_s: float
    median_error_s: float
    team: str
    event: str


class DeadlineBin(TypedDict):
    """Forecasts of deadlines with probabilities between two limits."""

    least: float
    most: float
    outcomes: int
    too_few: bool
    stated: float
    met: float


class DeadlineAccuracy(TypedDict):
    """How accurate probabilities of meeting deadlines were."""

    outcomes: int
    too_few: bool
    met: float | None
    brier: float | None
    brier_of_mean: float | None
    bins: list[DeadlineBin]


class DurationJudgement(TypedDict):
    """Accuracy of the durations from one source."""

    moment: str
    basis: str
    jobs: int
    too_few: bool
    mean_absolute_error: float
    factor: float
    rank_correlation: float | None
    within_limits: float | None


class ErrorFigures(TypedDict):
    """Errors of estimates of durations."""

    mean_absolute_error: float
    factor: float
    rank_correlation: float | None


class ModelComparison(TypedDict):
    """The model of durations beside the mean of similar jobs, for one source."""

    basis: str | None
    jobs: int
    model: ErrorFigures
    mean: ErrorFigures
    in_use: bool


class DurationModel(TypedDict):
    """The fitted model of durations, beside what it was compared with."""

    fitted_at: str
    jobs: int
    comparisons: list[ModelComparison]


class RateJudgement(TypedDict):
    """How accurate rates of one source were."""

    source: str
    attempts: int
    too_few: bool
    mean_absolute_error: float
    factor: float
    rank_correlation: float | None


class Estimates(TypedDict):
    """How accurate durations and rates were, by source."""

    durations: list[DurationJudgement]
    duration_model: DurationModel | None
    rates: list[RateJudgement]
