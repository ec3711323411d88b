"""One node rank in its supervisor: the init process on this machine, its pipes and its logs."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from selectors import EVENT_READ, BaseSelector
from typing import Literal

from engines.attempt_files import AttemptFolder, LaunchFile
from engines.masked_log import CappedLog, MaskedLog
from engines.output_order import ORDERED, OutputOrder, sizes_of
from engines.protocol import Stream
from engines.supervision import cgroup
from engines.supervision.container import remove_state
from engines.supervision.init_process import RankExit, RankStart
from engines.supervision.isolation import PREFIXES, Isolation
from engines.supervision.processes import MARK

READ_BYTES = 64 * 1024
PACKAGE_PARENT = Path(__file__).resolve().parents[2]
RANK = "MOTLEY_INIT_RANK"
"""Environment variable of the rank's init process, by which a session finds it."""
SITE_VARIABLES = (
    *("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"),
    *("SLURM_JOB_ID", "SLURM_JOBID", "SLURMD_NODENAME", "SLURM_STEP_GPUS"),
)
"""Variables of the surroundings that a job gets: the devices that the site chose, and where it runs."""
PYTHON = (sys.executable, "-ES", "-m")
"""Our interpreter without site packages, which are not needed and would take most of the start time."""


class Rank:
    """Starts the init process; the supervisor calls `pump` when a pipe is readable, and polls `outcome`.

    A subclass starts it elsewhere: it overrides `start`, `start_input`, `read_outcome` and, if
    the death of its processes may go unnoticed, `watch`.
    """

    def __init__(self, number: int, launch: LaunchFile, folder: AttemptFolder) -> None:
        self.number = number
        self.folder = folder
        self._cgroup = ""
        container = launch["ranks"][number].get("container")
        self._container_state = container["folder"] if container is not None else ""
        self._process = self.start(launch)
        self._told: set[str] = set()
        self._outcome: RankExit | None = None
        logs = [folder.log(stream, number) for stream in ORDERED]
        self._order = OutputOrder(
            folder.log(Stream.ORDER, number), partial(sizes_of, logs), limit_bytes=launch["log_limit_bytes"]
        )
        self._logs = {
            _descriptor(pipe): self._log_of(stream, launch)
            for pipe, stream in ((self._process.stdout, Stream.STDOUT), (self._process.stderr, Stream.STDERR))
        }
        self._send(json.dumps(self.start_input(launch)))

    @property
    def silent_node(self) -> str:
        """Node on which the end of the rank is not proven; empty if it is."""
        return ""

    def watch(self) -> None:
        """End a rank that is lost; called often."""

    def start(self, launch: LaunchFile) -> "subprocess.Popen[bytes]":
        """Start the process whose standard streams are the rank's commands and logs."""
        if (found := launch["ranks"][self.number].get("limits", {}).get("cgroup")) is not None:
            self._cgroup = found["path"]
            cgroup.make(found)
        self._report, self._report_in = os.pipe()
        try:
            return self._start_init_process(launch)
        except OSError:
            os.close(self._report)
            raise
        finally:
            os.close(self._report_in)

    def _log_of(self, stream: Stream, launch: LaunchFile) -> MaskedLog:
        path, grows = self.folder.log(stream, self.number), partial(self._order.note, stream)
        log = CappedLog(path, limit_bytes=launch["log_limit_bytes"], grows=grows)
        return MaskedLog(log, launch.get("masked", []))

    def start_input(self, launch: LaunchFile) -> RankStart:
        return RankStart(
            **launch["ranks"][self.number],
            user=launch["user"],
            report=self._report_in,
            outcome_file="",
            heartbeat_file="",
            inherit=[],
            masked=launch.get("masked", []),
            memory_file=str(self.folder.memory(self.number)),
            ready_file=str(self.folder.ready(self.number)) if launch.get("waits") else "",
        )

    def read_outcome(self, code: int) -> RankExit:
        """Exit of the rank once its process has ended with `code`."""
        with os.fdopen(self._report) as report:
            answer = report.read()
        if not answer:
            return RankExit(
                exit_code=137, message="The job's init process was killed from outside: submit the job again."
            )
        outcome: RankExit = json.loads(answer)
        return outcome

    def _start_init_process(self, launch: LaunchFile) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(  # noqa: S603 - our own program
            [*PREFIXES[Isolation(launch["isolation"])], *PYTHON, "engines.supervision.init_process"],
            bufsize=0,
            cwd=PACKAGE_PARENT,
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", MARK: launch["mark"], RANK: str(self.number)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(self._report_in,),
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

    def tell(self, word: Literal["go", "term", "kill"]) -> None:
        if word not in self._told:
            self._told.add(word)
            self._send(word)

    def kill_init_process(self) -> None:
        self._process.kill()

    def outcome(self) -> RankExit | None:
        """Exit of the rank, None while it runs."""
        if self._outcome is None and (code := self._process.poll()) is not None:
            self._outcome = self.read_outcome(code)
        return self._outcome

    def kill_left(self) -> bool:
        """Kill the remaining processes in the rank's cgroup; returns whether there were any."""
        return bool(self._cgroup) and cgroup.kill_members(self._cgroup)

    def close(self) -> None:
        """Copy what is left in the pipes to the logs; no writer is left."""
        if self._cgroup:
            cgroup.remove(self._cgroup)
        if self._container_state:
            remove_state(self._container_state)
        for descriptor, log in self._logs.items():
            while self.pump(descriptor):
                pass
            log.close()
        self._order.close()

    def _send(self, line: str) -> None:
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # it has ended; its exit code will be read next
                self._process.stdin.write(line.encode() + b"\n")


def _descriptor(pipe: object) -> int:
    return pipe.fileno()  # type: ignore[attr-defined, no-any-return]
