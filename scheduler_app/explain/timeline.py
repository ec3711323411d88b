"""Timeline of a job: its time in each state, with the cause of each delay. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from jobs_app.models import Attempt, Job

CAUSES = {
    "queued": "waiting to be placed",
    "starting": "GPUs are vacated, processes start",
    "running": "processes run",
    "stopping": "job saving its work",
}


@dataclass(frozen=True)
class StateSpan:
    """Time from `start` to `end` in one state; `attempt` is the number of the attempt, 0 for none."""

    state: str
    start: datetime
    end: datetime
    attempt: int = 0

    @property
    def seconds(self) -> float:
        return (self.end - self.start).total_seconds()

    @property
    def cause(self) -> str:
        return CAUSES[self.state]


@dataclass(frozen=True)
class BarSegment:
    """A span and its position on a bar, in thousandths of the bar's width."""

    span: StateSpan
    x: float
    width: float


def state_spans(job: Job, attempts: Sequence[Attempt], now: datetime) -> list[StateSpan]:
    """Consecutive spans from submission to the end, or to now."""
    end = job.finished_at or now
    spans: list[StateSpan] = []
    at = job.created_at
    for state, until, number in [*_state_ends(attempts, end), ("queued", end, 0)]:
        until = min(max(until, at), end)  # noqa: PLW2901 - a moved job's next attempt is claimed before its last ends
        if until > at:
            spans.append(StateSpan(state, at, until, number))
            at = until
    return spans


def _state_ends(attempts: Iterable[Attempt], end: datetime) -> Iterator[tuple[str, datetime, int]]:
    """Each state with the time at which it ends."""
    for attempt in attempts:
        over = attempt.ended_at or end
        yield "queued", attempt.claimed_at, 0
        yield "starting", attempt.started_at or attempt.stopping_at or over, attempt.number
        if attempt.started_at:
            yield "running", attempt.stopping_at or over, attempt.number
        yield "stopping", over, attempt.number


def bar_segments(spans: Sequence[StateSpan]) -> list[BarSegment]:
    """Spans laid out side by side on a bar."""
    whole = sum(span.seconds for span in spans) or 1.0
    segments, x = [], 0.0
    for span in spans:
        width = 1000 * span.seconds / whole
        segments.append(BarSegment(span, round(x, 2), round(width, 2)))
        x += width
    return segments


def seconds_by_state(spans: Iterable[StateSpan]) -> dict[str, float]:
    """Seconds in each state, in the order of the states."""
    seconds: dict[str, float] = defaultdict(float)
    for span in spans:
        seconds[span.state] += span.seconds
    return {state: seconds[state] for state in CAUSES if state in seconds}
