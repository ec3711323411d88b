"""Log of a rank: capped, with the secrets of its job masked."""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

LEAST_MASKED = 8
LOST = b"\n... some output was lost: the disk was full\n"


class MaskedLog:
    """Log in which secret texts are replaced by `***`, also where one is split between two writes.

    All occurrences are masked, those that overlap by one `***`, as if everything had been written at once: the end of
    what was written is held back while a text may begin there, and a text that has ended while a longer one may.
    """

    def __init__(self, log: "CappedLog", texts: Iterable[str]) -> None:
        self._log = log
        self._texts = sorted({text.encode() for text in texts if text}, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._texts))) if self._texts else None
        self._held = b""
        """Held back: the last bytes written, as they may be the beginning of a secret."""
        self._covered = 0
        """How many of them are of a text that is masked already."""

    def write(self, data: bytes) -> None:
        if self._pattern is None:
            self._log.write(data)
            return
        data = self._held + data
        self._pass_on(data, until=len(data) - max(_overlap(data, text) for text in self._texts))

    def close(self) -> None:
        self._pass_on(self._held, until=len(self._held))
        self._log.close()

    def _pass_on(self, data: bytes, *, until: int) -> None:
        """Write the bytes before `until`, masked, and hold the rest; no text that begins before is unfinished."""
        masked, covered, at = [], self._covered, 0
        while self._pattern and (found := self._pattern.search(data, at)) and found.start() < until:
            if found.start() >= covered:
                masked.append(data[covered : found.start()] + b"***")
            covered, at = max(covered, found.end()), found.start() + 1
        masked.append(data[covered:until])
        self._held, self._covered = data[until:], max(covered - until, 0)
        if written := b"".join(masked):
            self._log.write(written)


def _overlap(data: bytes, text: bytes) -> int:
    """Length of the longest end of the data that is a beginning of the text, but not all of it."""
    at = data.find(text[:1], max(0, len(data) - len(text) + 1))
    while at >= 0 and not (text.startswith(data[at : at + 64]) and text.startswith(data[at:])):
        at = data.find(text[:1], at + 1)
    return len(data) - at if at >= 0 else 0


def masked_texts(values: Iterable[str]) -> list[str]:
    """Texts to mask for these values: each value, and each of its lines of sufficient length."""
    return sorted({text for value in values for text in (value, *value.splitlines()) if len(text) >= LEAST_MASKED})


class CappedLog:
    """Writes bytes up to a limit, then a truncation mark; the rest is dropped, so that the job never blocks."""

    def __init__(self, path: Path, *, limit_bytes: int, grows: Callable[[], None] | None = None) -> None:
        """`grows` is called before each write."""
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
        is_last = len(data) > self._left_bytes
        text = (LOST if self._lost else b"") + data[: self._left_bytes]
        if is_last:
            text += f"\n... truncated by Motley at {self._limit_bytes} bytes\n".encode()
        try:
            self._write_all(text)
            self._lost, self._full = False, is_last
        except OSError:  # a full disk costs this part of the log, not the job
            self._lost = True
        self._left_bytes = max(0, self._left_bytes - len(data))

    def close(self) -> None:
        os.close(self._file)

    def _write_all(self, data: bytes) -> None:
        if self._grows is not None and data:
            self._grows()
        while data:
            data = data[os.write(self._file, data) :]
