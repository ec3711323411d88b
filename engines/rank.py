"""One node rank as its supervisor sees it: a first process, its pipes and its logs."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from selectors import EVENT_READ, BaseSelector
from typing import Literal

from engines.first_process import Outcome, Plan
from engines.folder import AttemptFolder, LaunchFile
from engines.isolation import PREFIXES, Isolation
from engines.logfile import CappedLog
from engines.processes import MARK
from engines.protocol import Stream

READ_BYTES = 64 * 1024
PACKAGE_PARENT = Path(__file__).resolve().parent.parent
PYTHON = (sys.executable, "-ES", "-m")
"""Our own interpreter without site packages: they are not needed, and cost more than all the rest of the start."""


class Rank:
    """Starts when made; the supervisor then calls `pump` when a pipe has data, and `outcome` for how it ended."""

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
        self._outcome: Outcome | None = None
        limit_bytes = launch["log_limit_bytes"]
        self._logs = {
            _descriptor(self._process.stdout): CappedLog(folder.log(Stream.STDOUT, number), limit_bytes=limit_bytes),
            _descriptor(self._process.stderr): CappedLog(folder.log(Stream.STDERR, number), limit_bytes=limit_bytes),
        }
        self._send(json.dumps(Plan(**launch["ranks"][number], user=launch["user"], report=report_in)))

    def _start(self, launch: LaunchFile, report_in: int) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(  # noqa: S603 - our own program
            [*PREFIXES[Isolation(launch["isolation"])], *PYTHON, "engines.first_process"],
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

    def pump(self, descriptor: int) -> bool:
        """Move what a pipe holds to its log; False when the pipe has ended or is empty."""
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return False
        self._logs[descriptor].write(data)
        return bool(data)

    def tell(self, word: Literal["term", "kill"]) -> None:
        if word not in self._told:
            self._told.add(word)
            self._send(word)

    def kill_first_process(self) -> None:
        self._process.kill()

    def outcome(self) -> Outcome | None:
        """How the rank ended, None while it runs."""
        if self._outcome is None and self._process.poll() is not None:
            self._outcome = self._read_outcome()
        return self._outcome

    def close(self) -> None:
        """Empty the pipes into the logs: nobody is left who could write to them."""
        for descriptor, log in self._logs.items():
            while self.pump(descriptor):
                pass
            log.close()

    def _send(self, line: str) -> None:
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # it has ended: its outcome is on the way
                self._process.stdin.write(line.encode() + b"\n")

    def _read_outcome(self) -> Outcome:
        with os.fdopen(self._report) as report:
            answer = report.read()
        if not answer:
            return Outcome(exit_code=137, message="The job's first process was killed from outside: submit it again.")
        outcome: Outcome = json.loads(answer)
        return outcome


def _descriptor(pipe: object) -> int:
    return pipe.fileno()  # type: ignore[attr-defined, no-any-return]
