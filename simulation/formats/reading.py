"""Lines of a trace, field by field; what cannot be read is named by line, column and reason."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import NoReturn

from simulation.trace import InvalidTrace, Trace, TraceJob


@dataclass(frozen=True)
class Line:
    """The fields of a line; it and its columns are counted from 1 where a person is told."""

    number: int
    fields: Sequence[str]

    def expect(self, columns: int) -> None:
        if len(self.fields) != columns:
            self.refuse(min(len(self.fields), columns), f"{len(self.fields)} columns in place of {columns}")

    def text_at(self, column: int) -> str:
        return self.fields[column].strip() or self.refuse(column, "is empty")

    def number_at(self, column: int, *, least: float) -> float:
        text = self.fields[column].strip()
        try:
            value = float(text)
        except ValueError:
            self.refuse(column, f"'{text}' is not a number")
        if not isfinite(value):
            self.refuse(column, f"'{text}' is not finite")
        return value if value >= least else self.refuse(column, f"{text} is less than {least:g}")

    def positive_at(self, column: int) -> float:
        value = self.number_at(column, least=0)
        return value if value > 0 else self.refuse(column, f"{self.fields[column].strip()} is not positive")

    def whole_at(self, column: int, *, least: int) -> int:
        value = self.number_at(column, least=least)
        return int(value) if value == int(value) else self.refuse(column, f"{self.fields[column]} is not whole")

    def refuse(self, column: int, reason: str) -> NoReturn:
        raise InvalidTrace(self.number, column + 1, reason)


def read_lines(lines: Iterable[Line], job_of: Callable[[Line], TraceJob], *, skip_bad: bool) -> Trace:
    """Give the jobs of all lines, or raise the first line's fault; with skip_bad, such lines are counted."""
    jobs, skipped = [], 0
    for line in lines:
        try:
            jobs.append(job_of(line))
        except InvalidTrace:
            if not skip_bad:
                raise
            skipped += 1
    return Trace.of(jobs, skipped)
