"""Parsing of trace lines field by field; errors name the line, the column and the reason."""

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from textwrap import shorten
from typing import NoReturn

from simulation.traces.trace import InvalidTrace, LeftOut, Trace, TraceJob

LONGEST = 200
"""Longest error message, in characters: a field may be of any length."""

LEAST_WEIGHT, MOST_WEIGHT = 1e-6, 1e6
"""As the service accepts them, of teams and of jobs."""

JobOf = Callable[["Line"], TraceJob | LeftOut]
"""The job of a line, or why it is left out."""


@dataclass(frozen=True)
class Line:
    """The fields of a line; messages count lines and columns from 1."""

    number: int
    fields: Sequence[str]
    header: Mapping[str, int] = field(default_factory=dict)

    def expect(self, columns: int) -> None:
        if len(self.fields) != columns:
            self.refuse(min(len(self.fields), columns), f"{len(self.fields)} columns instead of {columns}")

    def has(self, column: int | str) -> bool:
        """Whether the column exists and is not empty."""
        known = isinstance(column, int) or column in self.header
        return known and bool(self.fields[self._place(column)].strip())

    def text_at(self, column: int | str) -> str:
        return self.fields[self._place(column)].strip() or self.refuse(column, "is empty")

    def number_at(self, column: int | str, *, least: float) -> float:
        text = self.text_at(column)
        try:
            value = float(text)
        except ValueError:
            self.refuse(column, f"'{text}' is not a number")
        if not isfinite(value):
            self.refuse(column, f"'{text}' is not finite")
        return value if value >= least else self.refuse(column, f"{text} is less than {least:g}")

    def positive_at(self, column: int | str) -> float:
        value = self.number_at(column, least=0)
        return value if value > 0 else self.refuse(column, f"{self.text_at(column)} is not positive")

    def weight_at(self, column: int | str) -> float:
        """A weight within these bounds."""
        value = self.number_at(column, least=LEAST_WEIGHT)
        if value > MOST_WEIGHT:
            self.refuse(column, f"{self.text_at(column)} is more than {MOST_WEIGHT:g}")
        return value

    def whole_at(self, column: int | str, *, least: int) -> int:
        value = self.number_at(column, least=least)
        return int(value) if value == int(value) else self.refuse(column, f"{self.text_at(column)} is not whole")

    def whole_or_map_at(self, column: int | str, *, example: str) -> int | dict[str, int]:
        """A whole number, or whole numbers by name as a JSON map; each at least 1."""
        text = self.text_at(column)
        if not text.startswith("{"):
            return self.whole_at(column, least=1)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            self.refuse(column, f"'{text:.40}' is not JSON such as {example}")
        if not value or not all(type(number) is int for number in value.values()):
            self.refuse(column, f"'{text:.40}' is not a map to whole numbers such as {example}")
        for name, number in value.items():
            if number < 1:
                self.refuse(column, f"of {name:.40} is {number}, less than 1")
        return dict(value)

    def refuse(self, column: int | str, reason: str) -> NoReturn:
        named = f"{column} " if isinstance(column, str) else ""
        raise InvalidTrace(self.number, self._place(column) + 1, shortened(named + reason))

    def _place(self, column: int | str) -> int:
        return column if isinstance(column, int) else self.header[column]


def shortened(reason: str) -> str:
    """A reason of which no more than LONGEST characters are shown."""
    return shorten(reason, LONGEST, placeholder="…")


def read_lines(lines: Iterable[Line], job_of: JobOf, *, skip_bad: bool) -> Trace:
    """Read all lines; the first invalid line raises InvalidTrace, or, with skip_bad, invalid lines are counted."""
    return collect((partial(job_of, line) for line in lines), skip_bad=skip_bad)


def collect(reads: Iterable[Callable[[], TraceJob | LeftOut]], *, skip_bad: bool) -> Trace:
    """The trace of all reads; the first InvalidTrace is raised, or, with skip_bad, they are counted."""
    jobs, left_out, skipped = list[TraceJob](), Counter[LeftOut](), 0
    for read in reads:
        try:
            found = read()
        except InvalidTrace:
            if not skip_bad:
                raise
            skipped += 1
        else:
            if isinstance(found, LeftOut):
                left_out[found] += 1
            else:
                jobs.append(found)
    return Trace.of(jobs, skipped, left_out)


def read_table(lines: Iterable[str], job_of: JobOf, *, needs: Iterable[str], skip_bad: bool) -> Trace:
    """Read comma-separated lines below a header that has at least the required columns."""
    rows = csv.reader(lines)
    header = {name.strip(): place for place, name in enumerate(next(rows, []))}
    if missing := [name for name in needs if name not in header]:
        raise InvalidTrace(1, 1, f"the header has no column {', '.join(missing)}")

    def checked(line: Line) -> TraceJob | LeftOut:
        line.expect(len(header))
        return job_of(line)

    found = (Line(rows.line_num, fields, header) for fields in rows if fields)
    return read_lines(found, checked, skip_bad=skip_bad)
