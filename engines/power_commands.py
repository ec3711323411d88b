"""Commands that put nodes to sleep and wake them: they run beside the scheduler, each within a time limit."""

import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import IO, NamedTuple

MOST_OUTPUT = 2000
"""Bytes of a command's output that are kept, the last ones."""
NOT_FOUND = 127
PASSED_ON = ("PATH", "HOME", "LANG")
"""Of the service's environment, which has its keys."""


class PowerTask(NamedTuple):
    """What a command was started for, by which its end is told from that of another for the same node."""

    node: str
    since: datetime
    """When the node was put to sleep, or began to be woken."""
    sent_at: datetime


@dataclass(frozen=True)
class PowerCommandEnd:
    """How a command ended. `exit_code` is None where its time was up."""

    task: PowerTask
    exit_code: int | None
    output: str

    @property
    def fault(self) -> str:
        """What went wrong; empty: it ended well."""
        if self.exit_code == 0:
            return ""
        how = "its time was up" if self.exit_code is None else f"exit code {self.exit_code}"
        return f"{how}: {self.output}" if self.output else how


@dataclass(frozen=True)
class Running:
    task: PowerTask
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    end_at_s: float


class PowerCommands:
    """Running commands by node, one per node at a time."""

    def __init__(self) -> None:
        self._running: dict[str, Running] = {}
        self._unstarted: list[PowerCommandEnd] = []

    @property
    def nodes(self) -> set[str]:
        """Nodes with a command under way."""
        return {*self._running}

    def start(self, task: PowerTask, template: str, *, timeout_s: float) -> None:
        """Start the command for a node without a shell; one that cannot be started is among the next ends."""
        output = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the command
        try:
            process = subprocess.Popen(  # noqa: S603 - the site's own words, through no shell
                words_of(template, task.node),
                env={name: os.environ[name] for name in PASSED_ON if name in os.environ},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:  # no such program; quotes that do not end
            output.close()
            self._unstarted.append(PowerCommandEnd(task, NOT_FOUND, str(error)))
        else:
            self._running[task.node] = Running(task, process, output, monotonic() + timeout_s)

    def ended(self) -> Iterator[PowerCommandEnd]:
        """Commands that have ended since the last call; those whose time is up are killed with what they started."""
        unstarted, self._unstarted = self._unstarted, []
        yield from unstarted
        for node, running in list(self._running.items()):
            exit_code = running.process.poll()
            if exit_code is None and monotonic() < running.end_at_s:
                continue
            if exit_code is None:
                _kill(running.process)
            del self._running[node]
            yield PowerCommandEnd(running.task, exit_code, _last_of(running.output))


def words_of(template: str, node: str) -> Sequence[str]:
    """The command's words, split as a shell does, with the node's name for `{node}`."""
    return [word.replace("{node}", node) for word in shlex.split(template)]


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_of(output: IO[bytes]) -> str:
    with output:
        size = output.seek(0, os.SEEK_END)
        output.seek(max(size - MOST_OUTPUT, 0))
        return output.read().decode(errors="replace").replace("\0", "").strip()
