"""Timeline as rows of a table for spreadsheets: runs, forecasts, outages and windows. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from insight_app.start_forecasts.showing import Interval
from insight_app.timeline.outages import Outage
from insight_app.timeline.reading import ExpectedRun, JobName, NodeWindow, Run, Timeline
from simulation.traces.motley_csv import as_text

COLUMNS = (
    *("kind", "job", "name", "team", "attempt", "gpu_type", "gpus", "nodes", "from", "until", "outcome", "round"),
    *("start_low", "start_median", "start_high", "finish_low", "finish_median", "finish_high"),
)


def export_rows(timeline: Timeline, nodes: Mapping[int, Sequence[str]]) -> Iterator[tuple[Any, ...]]:
    """One row for each run, forecast, outage and window, under `COLUMNS`; `nodes` are those of the runs, by attempt."""
    yield from (_run(run, nodes) for run in timeline.runs)
    yield from (_expected(one, nodes) for one in timeline.expected)
    yield from (_outage(outage) for outage in timeline.outages)
    yield from (_window(window) for window in timeline.windows)


def _run(run: Run, nodes: Mapping[int, Sequence[str]]) -> tuple[Any, ...]:
    on = (_known(run.number), run.gpu_type, run.gpus, " ".join(nodes.get(run.pk, ())))
    return (
        "run",
        *_job(run.job, seen=run.seen),
        *on,
        *_times(run.began_at, run.ended_at),
        run.ended_as,
        run.round_number,
    )


def _expected(one: ExpectedRun, nodes: Mapping[int, Sequence[str]]) -> tuple[Any, ...]:
    number, round_number = (_known(one.run.number), one.run.round_number) if one.run else ("", "")
    on = " ".join(nodes.get(one.run.pk, ())) if one.run else ""
    about = (number, one.gpu_type, one.gpus, on, "", "", "", round_number)
    quantiles = (*_quantiles(one.forecast.start), *_quantiles(one.forecast.finish))
    return ("expected", *_job(one.job, seen=one.seen), *about, *quantiles)


def _outage(outage: Outage) -> tuple[Any, ...]:
    what = f"{outage.what}: {outage.reason}" if outage.reason else outage.what
    return ("outage", "", "", "", "", "", "", outage.node, *_times(outage.since, outage.until), as_text(what))


def _window(window: NodeWindow) -> tuple[Any, ...]:
    nodes, what = " ".join(window.nodes), as_text(f"{window.what}: {window.reason}")
    return ("window", "", "", as_text(window.team), "", "", "", nodes, *_times(window.since, window.until), what)


def _known(number: int | None) -> int | str:
    return "" if number is None else number


def _job(job: JobName, *, seen: bool) -> tuple[str, str, str]:
    """Id, name and team; nothing of a job that the reader may not see."""
    return (str(job.pk), as_text(str(job)), as_text(job.team)) if seen else ("", "", "")


def _quantiles(interval: Interval | None) -> tuple[str, str, str]:
    if interval is None:
        return ("", "", "")
    low, median, high = _times(interval.low, interval.median, interval.high)
    return low, median, high


def _times(*moments: datetime | None) -> tuple[str, ...]:
    return tuple(at.isoformat(timespec="seconds") if at else "" for at in moments)
