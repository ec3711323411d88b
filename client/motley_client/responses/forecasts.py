"""When a job, or those of a team, are expected to start and end."""

from typing import NotRequired, TypedDict


class Interval(TypedDict):
    """Moments before which an event comes with 10, 50 and 90 %; None: it is more than three days away."""

    low: str | None
    median: str | None
    high: str | None
    note: NotRequired[str]
    """`later than foreseen`, or empty."""


class EmptyForecast(Interval):
    """When a node is empty, from the forecasts of the ends of its jobs."""

    made_at: str


class QueueForecast(TypedDict):
    """When a job starts, None if it holds GPUs, and when it ends; its place among the jobs that wait."""

    made_at: str
    start: Interval | None
    finish: Interval
    gpu_type: str
    type_part: float
    place: int
    queue: int
    in_time: NotRequired[float | None]
    """Probability of being done by its deadline."""


class JobForecast(TypedDict):
    """The forecast of a job, or why there is none."""

    forecast: QueueForecast | None
    why_none: str


class PlannedForecast(JobForecast):
    """The forecast of a job that has not been submitted, and what it would cost others."""

    others_wait_h: float | None
    promise: str


class StartStage(TypedDict):
    """A stage of a team's starts, of first ones or of restarts."""

    stage: str
    restart: bool
    starts: int
    p50_seconds: float
    p90_seconds: float


class TeamStarts(TypedDict):
    """Where the starts of a team's attempts went that ended in the window."""

    window_seconds: int
    stages: list[StartStage]
