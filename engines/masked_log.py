"""Log of a rank: capped, with the secrets of its job masked."""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

LEAST_MASKED = 8
LOST = b"\n... some output was lost: the disk was full\n"


class MaskedLog:
    """Log in which secret texts are replaced by `***`, also where one is split between two writes."""

    def __init__(self, log: "CappedLog", texts: Iterable[str]) -> None:
        self._log = log
        self._texts = sorted({text.encode() for text in texts if text}, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._texts))) if self._texts else None
        self._held = b""
        """Held back: the last bytes written, as they may be the beginning of a secret."""

    def write(self, data: bytes) -> None:
        if self._pattern is None:
            self._log.write(data)
            return
        masked = self._pattern.sub(b"***", self._held + data)
        held = self._beginning_at_the_end(masked)
        self._held = masked[len(masked) - held :]
        self._log.write(masked[: len(masked) - held])

    def close(self) -> None:
        self._log.write(self._held)
        self._log.close()

    def _beginning_at_the_end(self, data: bytes) -> int:
        """Length of the longest end of the data with which a secret begins."""
        most = max(map(len, self._texts)) - 1
        lengths = range(min(most, len(data)), 0, -1)
        return next((n for n in lengths if any(text.startswith(data[-n:]) for text in self._texts)), 0)


def masked_texts(values: Iterable[str]) -> list[str]:
    """Texts to mask for these values: each value, and each of its lines of sufficient length."""
    return sorted({text for value in values for text in (value, *value.splitlines()) if len(text) >= LEAST_MASKED})


class CappedLog:
    """Writes bytes up to a limit, then a truncation mark; the rest is dropped, so that the job never blocks."""

    def __init__(self, path: Path, *, limit_bytes: int, grows: Callable[[int, int], None] | None = None) -> None:
        """`grows` is called with the file's size before and after each write."""
        self._grows = grows
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._limit_bytes = limit_bytes
        self._left_bytes = limit_bytes
        self._full = False
        self._lost = False
        """Whether the disk was full at the last write."""

    def write(self, data: bytes) -> None:
        if self._full:
            return
        try:
            self._write_all((LOST if self._lost else b"") + data[: self._left_bytes])
            self._lost = False
            if len(data) > self._left_bytes:
                self._full = True
                self._write_all(f"\n... truncated by Motley at {self._limit_bytes} bytes\n".encode())
        except OSError:  # a full disk costs this part of the log, not the job
            self._lost = True
        self._left_bytes -= len(data)

    def close(self) -> None:
        os.close(self._file)

    def _write_all(self, data: bytes) -> None:
        if self._grows is not None and data:
            before = os.fstat(self._file).st_size
            self._grows(before, before + len(data))
        while data:
            data = data[os.write(self._file, data) :]
