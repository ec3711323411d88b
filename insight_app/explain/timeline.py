"""Timeline of a job: its time in each state, with the cause of each delay. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from itertools import pairwise

from jobs_app.models import Attempt, Job, JobEvent

CAUSES = {
    "deferred": "waiting for its begin time",
    "held": "held by a person, and not placed until released",
    "queued": "waiting to be placed",
    "starting": "processes start, where needed after others have left its GPUs",
    "running": "processes run",
    "stopping": "job saving its work",
    "expected-wait": "to the median of its forecast start",
    "expected-run": "to the median of its forecast end",
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

    @property
    def words(self) -> str:
        return self.state.replace("-", " ")


@dataclass(frozen=True)
class BarSegment:
    """A span and its position on a bar, in per cent of the bar's width.

    `style`: name of its colour, of the state or of the GPU type on which it runs; `gpus`: those GPUs, empty while it
    does not run; `label`: what there is room for; `is_move`: whether it begins after a move.
    """

    span: StateSpan
    x: float
    width: float
    style: str
    gpus: str = ""
    label: str = ""
    is_move: bool = False


@dataclass(frozen=True)
class Tick:
    """A time on the axis below the bar; `anchor` of its text, so that the first and the last stay on the page."""

    at: datetime
    x: float
    anchor: str
    text: str


TICKS = ((0, "start"), (25, "middle"), (50, "middle"), (75, "middle"), (100, "end"))
"""In per cent of the bar's width."""
LABELLED = 9.0
"""Width in per cent from which a label fits."""
A_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Restarts:
    """Cost of a job's restarts so far."""

    restarts: int
    starting_s: float
    lost_gpu_s: float


@dataclass(frozen=True)
class Hold:
    """A time in which a job was held; it may go on."""

    start: datetime
    end: datetime | None = None


def state_spans(job: Job, attempts: Sequence[Attempt], now: datetime, holds: Sequence[Hold] = ()) -> list[StateSpan]:
    """Consecutive spans from submission to the end, or to now."""
    end = job.finished_at or now
    spans: list[StateSpan] = []
    at = job.created_at
    for state, until, number in [*_state_ends(attempts, end), ("queued", end, 0)]:
        until = min(max(until, at), end)  # noqa: PLW2901 - a moved job's next attempt is claimed before its last ends
        if until > at:
            spans.append(StateSpan(state, at, until, number))
            at = until
    return [part for span in spans for part in _causes_of_wait(span, job, holds, is_last=span is spans[-1])]


def _causes_of_wait(span: StateSpan, job: Job, holds: Sequence[Hold], *, is_last: bool) -> Iterator[StateSpan]:
    """A wait in parts: until its begin time, while held, and else in the queue.

    A begin time after a start that came before it was set later, and did not hold for that wait.
    """
    begin = job.begin_time if job.begin_time and (is_last or job.begin_time <= span.end) else span.start
    bounds = {begin, *(moment for hold in holds for moment in (hold.start, hold.end) if moment)}
    cuts = sorted(at for at in bounds if span.start < at < span.end) if span.state == "queued" else []
    for start, end in pairwise([span.start, *cuts, span.end]):
        yield replace(span, state=_state_of_wait(span, start, begin, holds), start=start, end=end)


def _state_of_wait(span: StateSpan, at: datetime, begin: datetime, holds: Iterable[Hold]) -> str:
    if span.state != "queued":
        return span.state
    if any(hold.start <= at and (hold.end is None or at < hold.end) for hold in holds):
        return "held"
    return "deferred" if at < begin else "queued"


def waited_s(job: Job, spans: Iterable[StateSpan], now: datetime) -> float:
    """Seconds from its arrival to its first start, without those in which it was held."""
    until = job.started_at or job.finished_at or now
    held = [span for span in spans if span.state == "held" and span.start < until and span.end > job.arrived_at]
    held_s = sum((min(span.end, until) - max(span.start, job.arrived_at)).total_seconds() for span in held)
    return max(job.waited_s(now) - held_s, 0.0)


def holds_of(job: Job, attempts: Sequence[Attempt], events: Iterable[tuple[str, datetime]]) -> list[Hold]:
    """Times in which the job was held, from its events; one that was stopped to be held is so since it was back."""
    holds: list[Hold] = []
    since: datetime | None = None
    for kind, at in events:
        if kind == JobEvent.Kind.HELD:
            since = since or at
        elif start := since or _back_in_queue(attempts, at):
            holds.append(Hold(start, at))
            since = None
    if job.held:
        holds.append(Hold(since or job.queued_at))
    return holds


def _back_in_queue(attempts: Sequence[Attempt], at: datetime) -> datetime | None:
    """The end of the last attempt before that time; None where one was under way."""
    begun = [attempt for attempt in attempts if attempt.claimed_at <= at]
    ends = [attempt.ended_at for attempt in begun if attempt.ended_at and attempt.ended_at <= at]
    return max(ends) if ends and len(ends) == len(begun) else None


HOLDS = (JobEvent.Kind.HELD, JobEvent.Kind.RELEASED)
"""Kinds of the events from which holds are read."""


def _state_ends(attempts: Iterable[Attempt], end: datetime) -> Iterator[tuple[str, datetime, int]]:
    """Each state with the time at which it ends."""
    for attempt in attempts:
        over = attempt.ended_at or end
        yield "queued", attempt.claimed_at, 0
        yield "starting", attempt.started_at or attempt.stopping_at or over, attempt.number
        if attempt.started_at:
            yield "running", attempt.stopping_at or over, attempt.number
        yield "stopping", over, attempt.number


def expected_spans(now: datetime, starts_at: datetime | None, ends_at: datetime | None) -> list[StateSpan]:
    """Expected spans by these quantiles of a forecast: the wait until the start, and the run; none without an end."""
    if ends_at is None or ends_at <= now:
        return []
    start = min(max(starts_at or now, now), ends_at)
    coming = [StateSpan("expected-wait", now, start), StateSpan("expected-run", start, ends_at)]
    return [span for span in coming if span.seconds]


def bar_segments(
    spans: Sequence[StateSpan], attempts: Sequence[Attempt], styles: Mapping[str, str]
) -> list[BarSegment]:
    """Spans laid out side by side on a bar; `styles`: colour of each GPU type."""
    whole = sum(span.seconds for span in spans) or 1.0
    by_number = {attempt.number: attempt for attempt in attempts}
    segments, x = [], 0.0
    for span in spans:
        width = 100 * span.seconds / whole
        placed = BarSegment(span, round(x, 3), round(width, 3), f"span-{span.state}")
        attempt = by_number.get(span.attempt) if span.state == "running" else None
        segments.append(_on_gpus(placed, attempt, by_number.get(span.attempt - 1), styles) if attempt else placed)
        x += width
    return segments


def _on_gpus(segment: BarSegment, attempt: Attempt, before: Attempt | None, styles: Mapping[str, str]) -> BarSegment:
    """The segment in which the attempt runs; `before`: the attempt before it."""
    gpus = f"{attempt.gpu_count} x {attempt.gpu_type.name.upper()}"
    return replace(
        segment,
        style=styles[attempt.gpu_type.name],
        gpus=gpus,
        label=f"{attempt.number}: {gpus}" if segment.width >= LABELLED else "",
        is_move=before is not None and before.outcome == Attempt.Outcome.MOVED,
    )


def axis_ticks(spans: Sequence[StateSpan], zone: tzinfo, zone_name: str) -> list[Tick]:
    """Times below the bar, in the zone, which the first of them names."""
    if not spans:
        return []
    start, whole = spans[0].start, spans[-1].end - spans[0].start
    times = [start + whole * x / 100 for x, _ in TICKS]
    texts = [_tick_text(at.astimezone(zone), whole) for at in times]
    # Two ticks within one second would say the same.
    words = [f"{text} {zone_name}" if n == 0 else text if text != texts[n - 1] else "" for n, text in enumerate(texts)]
    return [Tick(at, x, anchor, told) for at, told, (x, anchor) in zip(times, words, TICKS, strict=True)]


def _tick_text(at: datetime, whole: timedelta) -> str:
    return f"{at:%H:%M:%S}" if whole < A_DAY else f"{at:%b %d, %H:%M}"


def seconds_by_gpus(spans: Iterable[StateSpan], attempts: Sequence[Attempt]) -> dict[str, float]:
    """Seconds in which it ran on each GPU type."""
    type_of = {attempt.number: attempt.gpu_type.name for attempt in attempts}
    seconds: dict[str, float] = defaultdict(float)
    for span in spans:
        if span.state == "running" and span.attempt in type_of:
            seconds[type_of[span.attempt]] += span.seconds
    return dict(seconds)


def restarts_of(job: Job, spans: Iterable[StateSpan], attempts: Sequence[Attempt]) -> Restarts | None:
    """Restarts of a job; None if it was started at most once."""
    started = sum(attempt.started_at is not None for attempt in attempts)
    if started < 2:
        return None
    starting_s = sum(span.seconds for span in spans if span.state == "starting")
    return Restarts(started - 1, starting_s, job.work_lost_gpu_s)


def seconds_by_state(spans: Iterable[StateSpan]) -> dict[str, float]:
    """Seconds in each state, in the order of the states."""
    seconds: dict[str, float] = defaultdict(float)
    for span in spans:
        seconds[span.state] += span.seconds
    return {state: seconds[state] for state in CAUSES if state in seconds}
