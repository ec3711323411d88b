"""Command of the site: run without a shell in a process group of its own, within a time limit, its last output kept."""

import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import IO, Self

MOST_OUTPUT = 2000
"""Bytes of a command's output that are kept, the last ones."""
NOT_FOUND = 127
AFTER_KILL_S = 5.0
"""For so long the end of a killed command is waited for."""


def split_command(template: str, **values: str) -> Sequence[str]:
    """The command's words, split as a shell does, with the values for `{name}`; they are never split."""
    words = shlex.split(template)
    for name, value in values.items():
        words = [word.replace(f"{{{name}}}", value) for word in words]
    return words


def fault_of(exit_code: int | None, output: str) -> str:
    """Fault of the command; empty if it succeeded. No exit code means that it timed out."""
    if exit_code == 0:
        return ""
    how = "its time was up" if exit_code is None else f"exit code {exit_code}"
    return f"{how}: {output}" if output else how


@dataclass(frozen=True)
class SiteCommand:
    """A running command."""

    process: "subprocess.Popen[bytes]"
    output: IO[bytes]
    end_at_s: float

    @classmethod
    def start(
        cls, words: Sequence[str], *, timeout_s: float, env: Mapping[str, str], folder: Path | None = None
    ) -> Self:
        """Start it; raises `OSError` or `ValueError` if that is not possible."""
        output = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the command
        try:
            process = subprocess.Popen(  # noqa: S603 - the site's own words, through no shell
                words,
                env=env,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError):
            output.close()
            raise
        return cls(process, output, monotonic() + timeout_s)

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or its time is up."""
        return self.process.poll() is not None or monotonic() >= self.end_at_s

    def end(self) -> tuple[int | None, str]:
        """Exit code and last output; it is killed with what it started, and has no exit code, if it still runs."""
        exit_code = self.process.poll()
        if exit_code is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):  # it waits for a driver, where no signal reaches it
                self.process.wait(AFTER_KILL_S)
        return exit_code, self._last_output()

    def _last_output(self) -> str:
        with self.output:
            size = self.output.seek(0, os.SEEK_END)
            self.output.seek(max(size - MOST_OUTPUT, 0))
            return self.output.read().decode(errors="replace").replace("\0", "").strip()
