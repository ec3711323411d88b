"""Validation of uploaded traces, in any format that the simulator reads without a folder of recordings."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from insight_app.lab.history import MOST_JOBS
from simulation.scenario.setting import STEPS_OF_A_TABLE, STEPS_OF_PROFILES
from simulation.traces.formats import FORMATS
from simulation.traces.trace import InvalidTrace, TraceJob
from simulation.workloads.rate_sources import InvalidTable, parse_gavel_table
from web.rest.errors import Fault, encodable

MOST_BYTES = 8 << 20
"""Of a trace, and of a table of rates."""
UPLOAD_FORMATS = tuple(name for name in FORMATS if name not in STEPS_OF_PROFILES)
TRACE, FORMAT, TABLE = "/trace", "/trace_format", "/throughputs"


@dataclass(frozen=True, kw_only=True)
class Upload:
    """Texts of a trace and, where its jobs name workloads of a table, of the table in Gavel's JSON format."""

    text: str
    format_name: str
    throughputs: str = ""


class InvalidUpload(ValueError):
    """The trace or its table cannot be read; the fault says where and what to do."""

    def __init__(self, pointer: str, detail: str) -> None:
        self.fault = Fault(pointer=pointer, code="invalid_trace", detail=encodable(detail))
        super().__init__(detail)


def read_upload(upload: Upload) -> Sequence[TraceJob]:
    """The jobs by arrival; raises InvalidUpload."""
    for pointer, detail in _refusals(upload):
        raise InvalidUpload(pointer, detail)
    try:
        jobs = FORMATS[upload.format_name](upload.text.splitlines()).jobs
    except InvalidTrace as error:
        detail = f"The trace cannot be read as {upload.format_name}: {error}. Correct the line, or choose its format."
        raise InvalidUpload(TRACE, detail) from error
    except csv.Error as error:
        raise InvalidUpload(TRACE, f"The trace is not a table of comma-separated values: {error}.") from error
    if not jobs:
        raise InvalidUpload(TRACE, "The trace has no jobs that ask for GPUs.")
    return jobs


def _refusals(upload: Upload) -> Iterator[tuple[str, str]]:
    """Faults that can be found before the trace is read: place and reason."""
    if upload.format_name not in UPLOAD_FORMATS:
        known = ", ".join(UPLOAD_FORMATS)
        yield FORMAT, f"There is no format {upload.format_name!r:.40} of uploaded traces; choose from {known}."
    for pointer, text in ((TRACE, upload.text), (TABLE, upload.throughputs)):
        if len(text.encode()) > MOST_BYTES:
            yield pointer, f"It has more than {MOST_BYTES >> 20} MiB: leave out jobs, or columns that are not read."
    if len(upload.text.splitlines()) > MOST_JOBS + 1:
        yield TRACE, f"It has more than {MOST_JOBS:,} lines: leave out jobs."
    if upload.format_name in STEPS_OF_A_TABLE and not upload.throughputs:
        yield TABLE, f"The format {upload.format_name} needs the table of its workloads' rates, in Gavel's JSON format."
    if upload.throughputs:
        yield from _table_faults(upload.throughputs)


def _table_faults(text: str) -> Iterator[tuple[str, str]]:
    try:
        parse_gavel_table(text, name="It")
    except InvalidTable as error:
        yield TABLE, f"{error}."
