"""Downloads: tables as CSV, and ranges of bytes."""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import StreamingHttpResponse
from rest_framework.exceptions import APIException

CSV = "text/csv"


class _Echo:
    """A file that hands back what is written: rows of CSV one by one."""

    def write(self, row: str) -> str:
        return row


def csv_answer(rows: Iterable[Sequence[Any]], *, name: str) -> StreamingHttpResponse:
    """The rows as a file for spreadsheets, sent one after the other."""
    written = csv.writer(_Echo())
    lines: Iterator[str] = (written.writerow(row) for row in rows)
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingHttpResponse(lines, content_type=CSV, headers=headers)


ONE_RANGE = re.compile(r"\s*bytes\s*=\s*(\d{0,18})\s*-\s*(\d{0,18})\s*", re.ASCII | re.IGNORECASE)


class NoSuchRange(APIException):
    """416: the range begins after the end of the log or file."""

    status_code = 416
    default_code = "no_such_range"

    def __init__(self, size: int) -> None:
        super().__init__(f"There are {size} bytes so far; the range begins after their end.")
        self.headers = {"Content-Range": f"bytes */{size}"}


@dataclass(frozen=True)
class ByteRange:
    """Bytes `start` up to, but not including, `end`, of `size`."""

    start: int
    end: int
    size: int

    @property
    def content_range(self) -> str:
        return f"bytes {self.start}-{self.end - 1}/{self.size}"


def is_range_request(header: str) -> bool:
    """Whether the header has one byte range; other units and several ranges are ignored, as RFC 9110 allows."""
    match = ONE_RANGE.fullmatch(header)
    return match is not None and any(match.groups())


def byte_range_of(header: str, size: int) -> ByteRange:
    """Resolve the header against the size; raise `NoSuchRange` if the range is empty."""
    match = ONE_RANGE.fullmatch(header)
    if match is None:
        raise ValueError(header)
    first, last = match.groups()
    start = int(first) if first else max(0, size - int(last))
    end = min(int(last) + 1, size) if first and last else size
    if start >= size or (first and last and int(last) < start):
        raise NoSuchRange(size)
    return ByteRange(start, end, size)
