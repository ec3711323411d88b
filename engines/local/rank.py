"""One node rank in its supervisor: the init process, its pipes and its logs."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from selectors import EVENT_READ, BaseSelector
from typing import Literal

from engines.attempt_files import AttemptFolder, CappedLog, LaunchFile
from engines.local.init_process import RankExit, RankStart
from engines.local.isolation import PREFIXES, Isolation
from engines.local.processes import MARK
from engines.protocol import Stream

READ_BYTES = 64 * 1024
PACKAGE_PARENT = Path(__file__).resolve().parents[2]
PYTHON = (sys.executable, "-ES", "-m")
"""Our interpreter without site packages, which are not needed and would take most of the start time."""


class Rank:
    """Starts the init process; the supervisor calls `pump` when a pipe is readable, and polls `outcome`."""

    def __init__(self, number: int, launch: LaunchFile, folder: AttemptFolder) -> None:
        report, report_in = os.pipe()
        try:
            self._process = self._start(launch, report_in)
        except OSError:
            os.close(report)
            raise
        finally:
            os.close(report_in)
        self._report = report
        self._told: set[str] = set()
        self._outcome: RankExit | None = None
        limit_bytes = launch["log_limit_bytes"]
        self._logs = {
            _descriptor(self._process.stdout): CappedLog(folder.log(Stream.STDOUT, number), limit_bytes=limit_bytes),
            _descriptor(self._process.stderr): CappedLog(folder.log(Stream.STDERR, number), limit_bytes=limit_bytes),
        }
        self._send(json.dumps(RankStart(**launch["ranks"][number], user=launch["user"], report=report_in)))

    def _start(self, launch: LaunchFile, report_in: int) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(  # noqa: S603 - our own program
            [*PREFIXES[Isolation(launch["isolation"])], *PYTHON, "engines.local.init_process"],
            bufsize=0,
            cwd=PACKAGE_PARENT,
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", MARK: launch["mark"]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(report_in,),
        )

    def register(self, selector: BaseSelector) -> None:
        for descriptor in self._logs:
            os.set_blocking(descriptor, False)
            selector.register(descriptor, EVENT_READ, self)

    def pump(self, descriptor: int) -> int | None:
        """Copy what a pipe holds to its log; return the number of bytes: 0 at end of file, None if it is empty."""
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return None
        self._logs[descriptor].write(data)
        return len(data)

    def tell(self, word: Literal["term", "kill"]) -> None:
        if word not in self._told:
            self._told.add(word)
            self._send(word)

    def kill_init_process(self) -> None:
        self._process.kill()

    def outcome(self) -> RankExit | None:
        """Exit of the rank, None while it runs."""
        if self._outcome is None and self._process.poll() is not None:
            self._outcome = self._read_outcome()
        return self._outcome

    def close(self) -> None:
        """Copy what is left in the pipes to the logs; no writer is left."""
        for descriptor, log in self._logs.items():
            while self.pump(descriptor):
                pass
            log.close()

    def _send(self, line: str) -> None:
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # it has ended; its exit code will be read next
                self._process.stdin.write(line.encode() + b"\n")

    def _read_outcome(self) -> RankExit:
        with os.fdopen(self._report) as report:
            answer = report.read()
        if not answer:
            return RankExit(
                exit_code=137, message="The job's init process was killed from outside: submit the job again."
            )
        outcome: RankExit = json.loads(answer)
        return outcome


def _descriptor(pipe: object) -> int:
    return pipe.fileno()  # type: ignore[attr-defined, no-any-return]
