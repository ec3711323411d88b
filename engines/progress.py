"""Reader of a job's progress file: parses new lines and keeps a summary."""

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from stat import S_ISREG
from typing import Any

from engines.epoch_length import EpochLength
from engines.protocol import MetricReport, Progress

LONGEST_LINE_BYTES = 64 * 1024
READ_BYTES = 1024 * 1024
GREATEST_INTEGER = 2**63 - 1
ROUNDING = 1e-6
"""What sums of floats may add to a whole number of steps."""
LONGEST_CHECKPOINT_S = 86_400.0
MOST_COUNTED = 2**31 - 1
"""Limit of the line counters, so that they fit into a database column."""
METRIC = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./@+-]{0,59}")
MOST_METRICS, MOST_LINKS, MOST_MILESTONES = 20, 10, 64
LINK_NAME = re.compile(r"[A-Za-z0-9_. -]{1,40}")
ADDRESS = re.compile(r"https?://[!-~]{1,490}")
LAST = "last"
"""Beside the steps of milestones: the last value of their metric."""
CHECKPOINT = ("checkpoint_s", "checkpoint_at", "checkpoint_step")
TIMES = ("first_at", "at", "checkpoint_at", "restored_at")
"""Of a summary."""


class Milestones:
    """Values of a metric at certain steps, from an environment variable like `val_loss:500,1500`.

    The value at a step is that of the first line at or after it that has the metric, however often the file is read.
    """

    def __init__(self, variable: str) -> None:
        self._metric, _, steps = variable.rpartition(":")
        self._steps = [step for step in steps.split(",") if step.isdecimal()]

    def with_line(self, before: Mapping[str, float | None], report: dict[str, Any]) -> Mapping[str, float | None]:
        """The values so far, with what this line adds; `last` is its own. None: it is no finite number any more."""
        own = report.get("metrics")
        told = own if isinstance(own, dict) and self._metric in own else report if self._metric == "loss" else {}
        if self._metric not in told:
            return before
        value = _number(told[self._metric])
        reached = {step: value for step in self._steps if int(step) <= report["step"]}
        return {**reached, **before, LAST: value}


class ProgressTail:
    """Follows a file that the job controls; robust against any content, truncation and replacement."""

    def __init__(self, path: Path, *, started_at: datetime, milestones: str = "") -> None:
        self.summary: Progress | None = None
        self.invalid_lines = 0
        self._path = path
        self._started_at = started_at
        self._milestones = Milestones(milestones)
        self._epoch_length = EpochLength()
        self._offset = 0
        self._partial = b""
        self._skipping = False

    def read(self, now: datetime) -> bool:
        """Read new lines, at most `READ_BYTES` at once; return whether there was anything."""
        data = self._read_new()
        *lines, rest = (self._partial + data).split(b"\n")
        for line in lines:
            self._take(line, now)
        self._keep(rest)
        return bool(data)

    def finish(self, now: datetime) -> None:
        """Parse the last line, which may lack a newline."""
        if self._partial:
            self._take(self._partial, now)
        self._keep(b"")

    def _read_new(self) -> bytes:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # no link out of the folder, no pipe
        try:
            descriptor = os.open(self._path, flags)
        except OSError:
            return b""
        try:
            return self._read_from(descriptor)
        finally:
            os.close(descriptor)

    def _read_from(self, descriptor: int) -> bytes:
        status = os.fstat(descriptor)
        if not S_ISREG(status.st_mode):
            return b""
        if status.st_size < self._offset:  # the job truncated the file
            self._offset, self._partial = 0, b""
        data = os.pread(descriptor, READ_BYTES, self._offset)
        self._offset += len(data)
        return data

    def _keep(self, rest: bytes) -> None:
        if len(rest) > LONGEST_LINE_BYTES:
            self._count_invalid(0 if self._skipping else 1)
            self._skipping, rest = True, b""
        self._partial = rest

    def _take(self, line: bytes, now: datetime) -> None:
        if self._skipping:
            self._skipping = False
        elif (report := _parse(line)) is None:
            self._count_invalid(1)
        else:
            self._add(report, now)

    def _count_invalid(self, lines: int) -> None:
        self.invalid_lines = min(self.invalid_lines + lines, MOST_COUNTED)

    def _time_of(self, report: dict[str, Any], now: datetime, *, name: str = "at") -> datetime:
        """The line's own time if plausible, else now: a job's clock may be wrong."""
        at = _number(report.get(name))
        plausible = at is not None and self._started_at.timestamp() <= at <= now.timestamp()
        return datetime.fromtimestamp(at, UTC) if at is not None and plausible else now

    def _add(self, report: dict[str, Any], now: datetime) -> None:
        step, at, first = report["step"], self._time_of(report, now), self.summary
        self.summary = Progress(
            reports=min(first.reports + 1, MOST_COUNTED) if first else 1,
            first_step=first.first_step if first else step,
            first_at=first.first_at if first else at,
            step=step,
            at=at,
            loss=_number(report.get("loss")),
            epoch=_number(report.get("epoch")),
            batch_size=_integer(report.get("batch_size")),
            total_steps=self._total_steps(report) or (first.total_steps if first else None),
            grad_sqr=_number(report.get("grad_sqr")),
            grad_var=_number(report.get("grad_var")),
            metrics=_metrics(report, dict(first.metrics) if first else {}),
            links=_links(report, dict(first.links) if first else {}),
            milestones=self._milestones.with_line(first.milestones if first else {}, report),
            **self._checkpoint_of(report, now),
            **self._restore_of(report, at),
        )

    def _total_steps(self, report: dict[str, Any]) -> int | None:
        """Total steps that the line gives; else by its epoch and batch, at first by the mean steps of an epoch."""
        if (told := _integer(report.get("total_steps"))) is not None:
            return told
        epoch, epochs = _number(report.get("epoch")), _number(report.get("epochs"))
        if epoch is None or not epochs or not 0 <= epoch <= epochs:
            return None
        step: int = report["step"]
        self._epoch_length.read(step, epoch, _integer(report.get("batch_size")))
        left = self._epoch_length.steps_left(epochs)
        if left is None:
            return _whole_steps(step * epochs / epoch) if epoch else None
        return _whole_steps(step + left - ROUNDING)

    def _checkpoint_of(self, report: dict[str, Any], now: datetime) -> dict[str, Any]:
        """The checkpoint that the line reports, else the last one before."""
        seconds, before = _number(report.get("checkpoint_s")), self.summary
        if seconds is not None and 0 <= seconds <= LONGEST_CHECKPOINT_S:
            at, step = self._time_of(report, now, name="checkpoint_at"), before.step if before else report["step"]
            return {"checkpoint_s": seconds, "checkpoint_at": at, "checkpoint_step": step}
        return {name: getattr(before, name) for name in CHECKPOINT} if before else {}

    def _restore_of(self, report: dict[str, Any], at: datetime) -> dict[str, Any]:
        """The restore that the first line reports, unless it says what cannot be: a job's clock may be wrong."""
        if self.summary is not None:
            return {"restore_s": self.summary.restore_s, "restored_at": self.summary.restored_at}
        seconds, over = _number(report.get("restore_s")), _number(report.get("restored_at"))
        if seconds is None or over is None or not 0 <= seconds <= over - self._started_at.timestamp():
            return {}
        return (
            {"restore_s": seconds, "restored_at": datetime.fromtimestamp(over, UTC)} if over <= at.timestamp() else {}
        )


def progress_to_json(progress: Progress | None, invalid_lines: int) -> dict[str, Any]:
    if progress is None:
        return {"invalid_lines": invalid_lines}
    moments = {name: getattr(progress, name) for name in TIMES}
    times = {name: at.isoformat() for name, at in moments.items() if at is not None}
    told = {name: value for name, value in asdict(progress).items() if value is not None}  # as releases before expect
    return told | times | {"invalid_lines": invalid_lines}


def progress_from_json(content: dict[str, Any]) -> tuple[Progress | None, int]:
    """The summary, if there is one, and the number of invalid lines; a field of a later release is left out."""
    known: dict[str, Any] = {name: value for name, value in content.items() if name in _names_of(Progress)}
    times: dict[str, Any] = {name: datetime.fromisoformat(known[name]) for name in TIMES if known.get(name) is not None}
    if not known:
        return None, content["invalid_lines"]
    metrics = {
        name: MetricReport(**{field: value for field, value in metric.items() if field in _names_of(MetricReport)})
        for name, metric in known.get("metrics", {}).items()
    }
    return Progress(**(known | times | {"metrics": metrics})), content["invalid_lines"]


@cache
def _names_of(kind: type[Progress | MetricReport]) -> frozenset[str]:
    return frozenset(field.name for field in fields(kind))


def _whole_steps(steps: float) -> int:
    """As many or one more; a job may report numbers of which the quotient is no number any more."""
    return math.ceil(steps) if steps < GREATEST_INTEGER else GREATEST_INTEGER


def _parse(line: bytes) -> dict[str, Any] | None:
    """Parse one line; None unless it is a JSON object with an integer step."""
    if len(line) > LONGEST_LINE_BYTES:
        return None
    try:
        report = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return report if isinstance(report, dict) and _integer(report.get("step")) is not None else None


def checked(progress: Progress) -> Progress:
    """The summary without names and addresses that no reader of lines would pass on: agents of others send them."""
    names = [name for name in progress.metrics if METRIC.fullmatch(name)][:MOST_METRICS]
    links = _links({"links": dict(progress.links)}, {})
    passed = {step: value for step, value in progress.milestones.items() if step == LAST or step.isdecimal()}
    milestones = passed if LAST in passed and len(passed) <= MOST_MILESTONES else {}
    return replace(
        progress, metrics={name: progress.metrics[name] for name in names}, links=links, milestones=milestones
    )


def _metrics(report: dict[str, Any], known: dict[str, MetricReport]) -> dict[str, MetricReport]:
    """The last values so far; a name or value that is none is left out, and so are names beyond the first ones."""
    told = report.get("metrics")
    for name, value in told.items() if isinstance(told, dict) else ():
        number = _number(value)
        if number is not None and METRIC.fullmatch(name) and (name in known or len(known) < MOST_METRICS):
            known[name] = MetricReport(report["step"], number)
    return known


def _links(report: dict[str, Any], known: dict[str, str]) -> dict[str, str]:
    """The links so far: addresses of web pages alone, for people click on them."""
    told = report.get("links")
    for name, address in told.items() if isinstance(told, dict) else ():
        is_address = isinstance(address, str) and ADDRESS.fullmatch(address)
        if is_address and LINK_NAME.fullmatch(name) and (name in known or len(known) < MOST_LINKS):
            known[name] = address
    return known


def _integer(value: object) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if isinstance(value, int) and whole and 0 <= value <= GREATEST_INTEGER else None


def _number(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > GREATEST_INTEGER:
        return None
    return float(value) if math.isfinite(value) else None
