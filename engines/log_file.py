"""Log file with a size limit, ending with a truncation mark."""

import os
from pathlib import Path


class CappedLog:
    """Writes bytes up to a limit, then a truncation mark; the rest is dropped, so that the job never blocks."""

    def __init__(self, path: Path, *, limit_bytes: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._limit_bytes = limit_bytes
        self._left_bytes = limit_bytes
        self._full = False

    def write(self, data: bytes) -> None:
        if self._full:
            return
        try:
            self._write_all(data[: self._left_bytes])
            if len(data) > self._left_bytes:
                self._full = True
                self._write_all(f"\n... truncated by Motley at {self._limit_bytes} bytes\n".encode())
        except OSError:  # a full disk costs the log, not the job
            self._full = True
        self._left_bytes -= len(data)

    def close(self) -> None:
        os.close(self._file)

    def _write_all(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._file, data) :]
