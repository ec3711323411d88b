"""Order in which a rank's standard output and standard error were received: the sizes of both logs over time.

A log has the bytes of one stream, without times. Beside both lies a file of records of equal length: the time, and how
long each log was then. A record is made before the first bytes of the other stream, and once a second while a stream
goes on. Between two records only one of the logs grows, so their bytes can be merged as they were received.
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from engines.protocol import Stream

ORDERED = (Stream.STDOUT, Stream.STDERR)
RECORD_BYTES = 40
"""13 digits of milliseconds since 1970, 12 digits of each size, two spaces and a newline."""
PERIOD_S = 1.0
LATEST_MS = 253_370_764_800_000
"""Beginning of the year 9999: what a machine that joined has sent may have later times, which are no dates."""


class OrderRecord(NamedTuple):
    """Sizes of the logs, in the order of `ORDERED`, at a time in milliseconds since 1970."""

    at_ms: int
    sizes: tuple[int, ...]


class OutputOrder:
    """Writes the records of one rank up to a limit; a full disk costs records, not output."""

    def __init__(
        self,
        path: Path,
        sizes: Callable[[], Sequence[int]],
        *,
        limit_bytes: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`sizes` reads the true sizes of both logs: a full disk may have lost bytes that were written."""
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._left = limit_bytes // RECORD_BYTES
        self._sizes, self._clock = sizes, clock
        self._stream: Stream | None = None
        self._at_s = self._last_s = 0.0

    def note(self, stream: Stream) -> None:
        """Bytes of this stream are about to be written. Times of records never go back, as a clock may."""
        now_s = self._clock()
        if stream is not self._stream or not 0 <= now_s - self._at_s < PERIOD_S:
            self._last_s = max(self._last_s, now_s)
            self._write(int(1000 * self._last_s))
            self._stream, self._at_s = stream, now_s

    def close(self) -> None:
        os.close(self._file)

    def _write(self, at_ms: int) -> None:
        if self._left <= 0:
            return
        with suppress(OSError):
            first, second = self._sizes()
            record = f"{at_ms:013d} {first:012d} {second:012d}\n".encode()
            written = os.write(self._file, record)
            if written == len(record):
                self._left -= 1
            else:  # a part of a record would shift all that come after it
                os.ftruncate(self._file, os.fstat(self._file).st_size - written)


def sizes_of(paths: Sequence[Path]) -> list[int]:
    """Sizes of files; of one that does not exist yet, 0."""
    found = []
    for path in paths:
        try:
            found.append(path.stat().st_size)
        except FileNotFoundError:
            found.append(0)
    return found


def parse_order(data: bytes) -> list[OrderRecord]:
    """Records of a part of the file that begins with a whole one; what is not a record is left out."""
    lines = (data[at : at + RECORD_BYTES].split() for at in range(0, len(data) - RECORD_BYTES + 1, RECORD_BYTES))
    found = [
        OrderRecord(int(at), (int(first), int(second)))
        for at, first, second in (line for line in lines if len(line) == 3 and all(map(bytes.isdigit, line)))
    ]
    return [record for record in found if record.at_ms <= LATEST_MS]
