"""A job's life as spans of time, each with who owns the delay. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from jobs_app.models import Attempt, Job

OWNERS = {
    "queued": "the queue",
    "starting": "the cluster: GPUs are vacated, processes start",
    "running": "the job",
    "stopping": "the job: it saves its work within its grace",
}


@dataclass(frozen=True)
class Span:
    """From `start` to `end` in one state; `attempt` is the number of the attempt, 0 for none."""

    state: str
    start: datetime
    end: datetime
    attempt: int = 0

    @property
    def seconds(self) -> float:
        return (self.end - self.start).total_seconds()

    @property
    def owner(self) -> str:
        return OWNERS[self.state]


@dataclass(frozen=True)
class Piece:
    """A span with its place on a bar, in thousandths of the bar's width."""

    span: Span
    x: float
    width: float


def spans_of(job: Job, attempts: Sequence[Attempt], now: datetime) -> list[Span]:
    """Every moment from submission to the end, or to now, in exactly one span."""
    end = job.finished_at or now
    spans: list[Span] = []
    at = job.created_at
    for state, until, number in [*_turns(attempts, end), ("queued", end, 0)]:
        until = min(max(until, at), end)  # noqa: PLW2901 - a moved job's next attempt is claimed before its last ends
        if until > at:
            spans.append(Span(state, at, until, number))
            at = until
    return spans


def _turns(attempts: Iterable[Attempt], end: datetime) -> Iterator[tuple[str, datetime, int]]:
    """Each state with the moment until which it lasts."""
    for attempt in attempts:
        over = attempt.ended_at or end
        yield "queued", attempt.claimed_at, 0
        yield "starting", attempt.started_at or attempt.stopping_at or over, attempt.number
        if attempt.started_at:
            yield "running", attempt.stopping_at or over, attempt.number
        yield "stopping", over, attempt.number


def placed(spans: Sequence[Span]) -> list[Piece]:
    """The spans side by side."""
    whole = sum(span.seconds for span in spans) or 1.0
    pieces, x = [], 0.0
    for span in spans:
        width = 1000 * span.seconds / whole
        pieces.append(Piece(span, round(x, 2), round(width, 2)))
        x += width
    return pieces


def seconds_by_state(spans: Iterable[Span]) -> dict[str, float]:
    """Seconds in each state, in the order in which a job goes through them."""
    seconds: dict[str, float] = defaultdict(float)
    for span in spans:
        seconds[span.state] += span.seconds
    return {state: seconds[state] for state in OWNERS if state in seconds}
