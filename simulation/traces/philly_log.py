"""Reader of Microsoft's `cluster_job_log`: a JSON list of Philly's jobs, each with its attempts.

A job arrives at its submitted_time. It runs for the sum of its attempts, because each held GPUs; its gang is that of
its last attempt that names GPUs. A job without such an attempt was never scheduled, and one whose last attempt has no
end ran until the log ends: both are left out and counted. Times have no zone; only their differences are used.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple, NoReturn

from simulation.traces.reading import collect, shortened
from simulation.traces.trace import InvalidTrace, LeftOut, Trace, TraceJob

NEEDS = ("jobid", "submitted_time", "vc", "attempts")
BETWEEN = " \t\n\r,"
NO_TIME = (None, "", "None")
DECODER = json.JSONDecoder(strict=False)


class _Record(NamedTuple):
    """One job of the log, and where it begins."""

    line: int
    column: int
    value: Any

    def refuse(self, reason: str) -> NoReturn:
        raise InvalidTrace(self.line, self.column, shortened(reason))

    def time(self, name: str, text: object) -> float | None:
        """Seconds of a time such as `2017-10-07 01:31:13`; None where the log has none."""
        if text in NO_TIME:
            return None
        try:
            return datetime.fromisoformat(str(text)).replace(tzinfo=UTC).timestamp()
        except ValueError:
            self.refuse(f"{name} '{text}' is not a date and time such as 2017-10-07 01:31:13")


def is_philly_log(text: str) -> bool:
    """Whether the text begins as this log does, with a list."""
    return text.lstrip().startswith("[")


def read_philly_log(lines: Iterable[str], *, skip_bad: bool = False) -> Trace:
    """Read the jobs, named by their jobid; the virtual cluster is the team; time starts at the first arrival."""
    reads = (partial(_job, record) for record in _records("\n".join(lines)))
    return collect(reads, skip_bad=skip_bad).from_first_arrival()


def _records(text: str) -> Iterator[_Record]:
    """Decode one job after the other, so that a fault can name the line where its job begins."""
    at, line, line_at = text.index("[") + 1, 1, 0
    while (at := _next(text, at)) < len(text) and text[at] != "]":
        line += text.count("\n", line_at, at)
        line_at = at
        try:
            value, at = DECODER.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise InvalidTrace(error.lineno, error.colno, f"is not JSON: {error.msg}; is the file whole?") from error
        except RecursionError:
            raise InvalidTrace(line, 1, "is nested too deeply to be a job of cluster_job_log") from None
        yield _Record(line, line_at - text.rfind("\n", 0, line_at), value)
    if at >= len(text):
        raise InvalidTrace(line + text.count("\n", line_at), 1, "the list has no end: is the file whole?")


def _next(text: str, at: int) -> int:
    while at < len(text) and text[at] in BETWEEN:
        at += 1
    return at


def _job(record: _Record) -> TraceJob | LeftOut:
    value = record.value
    if missing := [name for name in NEEDS if not isinstance(value, dict) or name not in value]:
        record.refuse(f"a job of cluster_job_log has {', '.join(NEEDS)}; this one lacks {', '.join(missing)}")
    submitted_s = record.time("submitted_time", value["submitted_time"])
    if submitted_s is None:
        record.refuse("submitted_time is empty")
    try:
        attempts = [
            (_gpus(attempt), attempt.get("start_time"), attempt.get("end_time")) for attempt in value["attempts"]
        ]
    except (TypeError, AttributeError, KeyError):
        record.refuse("attempts must be a list of attempts, each with start_time, end_time and detail of ip and gpus")
    return _of_attempts(record, submitted_s, [attempt for attempt in attempts if attempt[0] > 0])


def _gpus(attempt: dict[str, Any]) -> int:
    return sum(len(node["gpus"]) for node in attempt.get("detail") or ())


def _of_attempts(record: _Record, submitted_s: float, attempts: Sequence[tuple[int, Any, Any]]) -> TraceJob | LeftOut:
    times = [(record.time("start_time", began), record.time("end_time", ended)) for _, began, ended in attempts]
    ran_s = sum(ended - began for began, ended in times if began is not None and ended is not None)
    if not times or times[-1][0] is None:
        return LeftOut.NEVER_SCHEDULED
    if times[-1][1] is None:
        return LeftOut.NOT_ENDED
    if ran_s <= 0:
        record.refuse(f"the attempts of {record.value['jobid']} take {ran_s:g} s in all, which is not positive")
    return TraceJob(
        name=str(record.value["jobid"]),
        arrival_s=submitted_s,
        gangs=(attempts[-1][0],),
        duration_s=ran_s,
        team=str(record.value["vc"]),
    )
