"""Lines of a trace, field by field; what cannot be read is named by line, column and reason."""

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from textwrap import shorten
from typing import NoReturn

from simulation.trace import InvalidTrace, Trace, TraceJob

LONGEST = 200
"""Characters of a reason: what stands in a field may be of any length."""

JobOf = Callable[["Line"], TraceJob | None]
"""The job of a line, or None for a line that is of no job that wants GPUs."""


@dataclass(frozen=True)
class Line:
    """The fields of a line; it and its columns are counted from 1 where a person is told."""

    number: int
    fields: Sequence[str]
    header: Mapping[str, int] = field(default_factory=dict)

    def expect(self, columns: int) -> None:
        if len(self.fields) != columns:
            self.refuse(min(len(self.fields), columns), f"{len(self.fields)} columns in place of {columns}")

    def has(self, column: int | str) -> bool:
        """Whether there is such a column, and something in it."""
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

    def whole_at(self, column: int | str, *, least: int) -> int:
        value = self.number_at(column, least=least)
        return int(value) if value == int(value) else self.refuse(column, f"{self.text_at(column)} is not whole")

    def refuse(self, column: int | str, reason: str) -> NoReturn:
        named = f"{column} " if isinstance(column, str) else ""
        raise InvalidTrace(self.number, self._place(column) + 1, shorten(named + reason, LONGEST, placeholder="…"))

    def _place(self, column: int | str) -> int:
        return column if isinstance(column, int) else self.header[column]


def read_lines(lines: Iterable[Line], job_of: JobOf, *, skip_bad: bool) -> Trace:
    """Give the jobs of all lines, or raise the first line's fault; with skip_bad, such lines are counted."""
    jobs, skipped = [], 0
    for line in lines:
        try:
            job = job_of(line)
        except InvalidTrace:
            if not skip_bad:
                raise
            skipped += 1
        else:
            jobs += [job] if job else []
    return Trace.of(jobs, skipped)


def read_table(lines: Iterable[str], job_of: JobOf, *, needs: Iterable[str], skip_bad: bool) -> Trace:
    """Read lines of fields between commas, below a header that has at least the columns needed."""
    rows = csv.reader(lines)
    header = {name.strip(): place for place, name in enumerate(next(rows, []))}
    if missing := [name for name in needs if name not in header]:
        raise InvalidTrace(1, 1, f"the header has no column {', '.join(missing)}")

    def checked(line: Line) -> TraceJob | None:
        line.expect(len(header))
        return job_of(line)

    found = (Line(rows.line_num, fields, header) for fields in rows if fields)
    return read_lines(found, checked, skip_bad=skip_bad)
