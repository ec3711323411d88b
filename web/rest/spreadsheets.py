"""Answers for spreadsheets: rows of CSV, sent one after the other."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.http import StreamingHttpResponse

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
